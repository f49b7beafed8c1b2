"The benchmark runs from end to end: the short form on two cheap rows, and the rows that wait for stored sessions on an agent that has them."
import json, subprocess, sys
import pytest

pytestmark = pytest.mark.slow

def bench(tmp_path, *args):
    "Exit code, printed table, and the judged rows by key"
    r = subprocess.run([sys.executable,'-m','ramabana_acp.bench','--repeat','1','--json',str(tmp_path/'b.json'),*args], capture_output=True, text=True, timeout=120)
    assert (tmp_path/'b.json').exists(), r.stderr
    return r.returncode, r.stdout, {j['row']:j for j in json.loads((tmp_path/'b.json').read_text())['rows']}

def test_two_rows_are_measured_and_the_exit_code_tells_a_miss(tmp_path):
    code,out,rows = bench(tmp_path, '--short', '--rows', 'init,version')
    assert list(rows)==['init','version']
    assert all(j['ours']>0 and not j['why'] for j in rows.values()), rows
    assert 0<rows['init']['ours']<rows['init']['floor'], 'the handshake does not wait for the libraries, and the floor does'
    assert code==int(not all(j['ok'] for j in rows.values()))
    assert out.count('MISSED')==sum(not j['ok'] for j in rows.values())
    assert 'start → initialize answered' in out and 'against the short form' in out

def test_an_agent_that_cannot_do_it_misses_with_the_reason(tmp_path):
    code,out,rows = bench(tmp_path, '--short', '--rows', 'gone,version', '--ours', f"{sys.executable} {stored(tmp_path)}")
    assert (code, rows['gone']['ok']) == (1, False)
    assert 'the command: not before the turn ended' in rows['gone']['why'] and rows['gone']['why'] in out
    assert rows['version']['ok'] is False, 'it does not exit on --version'

def test_rows_of_stored_sessions_appear_once_they_are_advertised_and_rows_of_the_package_for_the_package(tmp_path):
    code,out,rows = bench(tmp_path, '--short', '--rows', 'version,load,replay,list,saved,reopen', '--ours', f"{sys.executable} {stored(tmp_path)}")
    assert list(rows)==['load','replay','list','version']
    assert all(rows[k]['ok'] for k in ('load','replay','list')), rows

def test_every_further_row_can_be_measured_in_the_short_form(tmp_path):
    keys = ['rested','turn','byte','chunks_claude','step','saved','reopen','replay']
    code,out,rows = bench(tmp_path, '--short', '--rows', ','.join(keys))
    assert list(rows)==keys and all(j['ours']>0 and not j['why'] for j in rows.values()), rows
    assert rows['byte']['ours']<120, 'the clock of the model server is not that of the client'

def test_an_unknown_row_is_named(tmp_path):
    r = subprocess.run([sys.executable,'-m','ramabana_acp.bench','--rows','bogus'], capture_output=True, text=True, timeout=60)
    assert (r.returncode, 'no such row: bogus' in r.stderr) == (2, True)

AGENT = '''
import json, os, sys
from pathlib import Path
if '--version' in sys.argv: sys.exit(3)
home = Path(os.environ['XDG_STATE_HOME'])/'tiny'
home.mkdir(parents=True, exist_ok=True)
put = lambda **m: print(json.dumps(dict(jsonrpc='2.0', **m)), flush=True)
def tell(sid, kind, text): put(method='session/update', params=dict(sessionId=sid, update=dict(sessionUpdate=kind, content=dict(type='text', text=text))))
for m in map(json.loads, sys.stdin):
    meth,p,res = m.get('method'),m.get('params') or {},{}
    if meth=='initialize': res = dict(protocolVersion=1, agentCapabilities=dict(loadSession=True, sessionCapabilities=dict(list={})))
    elif meth=='session/new':
        res = dict(sessionId='tiny-'+os.urandom(6).hex())
        (home/res['sessionId']).mkdir()
    elif meth=='session/prompt':
        with open(home/p['sessionId']/'log', 'a') as f: f.write(json.dumps(p['prompt'][0]['text'])+chr(10))
        tell(p['sessionId'], 'agent_message_chunk', 'Hello')
        res = dict(stopReason='end_turn')
    elif meth=='session/load':
        for l in (home/p['sessionId']/'log').read_text().splitlines(): tell(p['sessionId'], 'user_message_chunk', json.loads(l))
    elif meth=='session/list':
        ids = sorted(os.listdir(home))
        assert len(ids)==10_000, len(ids)
        res = dict(sessions=[dict(sessionId=i, cwd='/') for i in ids[:50]], nextCursor='50')
    if 'id' in m: put(id=m['id'], result=res)
'''

def stored(tmp_path):
    "A tiny agent whose conversations are on disk"
    (tmp_path/'agent.py').write_text(AGENT)
    return tmp_path/'agent.py'
