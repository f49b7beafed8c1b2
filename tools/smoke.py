"""Does an installed `ramabana-acp` answer? `python tools/smoke.py path/to/ramabana-acp`: the standard library only, so that any Python can ask."""
import json, os, subprocess, sys, tempfile, threading

def main(cmd='ramabana-acp'):
    cmd = os.path.abspath(cmd) if os.sep in cmd else cmd
    with tempfile.TemporaryDirectory() as d:
        p = subprocess.Popen([cmd, '--model', 'demo', '--cfg', d], stdin=-1, stdout=-1, cwd=d)
        late = threading.Timer(30, p.kill); late.start()
        def ask(id, method, **params):
            p.stdin.write(json.dumps(dict(jsonrpc='2.0', id=id, method=method, params=params)).encode()+b'\n'); p.stdin.flush()
            for line in p.stdout:
                m = json.loads(line)
                if m.get('id')==id: return m['result']
            sys.exit(f'{cmd} left without an answer to {method}')
        hello = ask(0, 'initialize', protocolVersion=1, clientCapabilities={})
        sid = ask(1, 'session/new', cwd=d, mcpServers=[])['sessionId']
        stop = ask(2, 'session/prompt', sessionId=sid, prompt=[dict(type='text', text='hello')])['stopReason']
        p.stdin.close()
        code = p.wait(10); late.cancel()
    print(f"{hello['agentInfo']['name']} {hello['agentInfo']['version']}: protocol {hello['protocolVersion']}, a session, a turn ({stop}), exit {code}")
    return int((hello['protocolVersion'], stop, code)!=(1, 'end_turn', 0))

if __name__=='__main__': sys.exit(main(*sys.argv[1:]))
