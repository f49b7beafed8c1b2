"The laws of the house, each by at least one test; other files hold their contracts in bulk"
import ast, asyncio, inspect
from wire import *
from ramabana_acp.editor.bridge import Bridge

# ---- 1: nothing but protocol

def test_law_1_a_command_writes_where_it_likes_and_never_into_the_protocol(bare):
    inos = [f'pipe:[{os.fstat(f.fileno()).st_ino}]' for f in (bare.proc.stdin, bare.proc.stdout)]
    s = bare.session(one('run_shell', command='''echo '{"jsonrpc":"2.0","id":1,"result":{}}'; echo not json >&2; for i in 3 4 5 6 7 8 9; do echo x >&$i; done; ls -l /proc/self/fd /proc/$$/fd'''))
    assert s.stop()=='end_turn' and 'not json' in s.results()[0]
    assert not any(i in s.results()[0] for i in inos)

def test_law_1_what_is_said_while_modules_load_is_not_said_on_the_protocol(tmp_path):
    (tmp_path/'sitecustomize.py').write_text('import atexit, sys\natexit.register(print, "bye")\nclass F:\n    def find_spec(self, n, *a):\n        if n=="acp": print("loading"); sys.stdout.flush()\nsys.meta_path.insert(0, F())\n')
    with agent(script=[OK], env=dict(PYTHONPATH=tmp_path)) as a: assert a.session().stop()=='end_turn'

# ---- 2: the loop never runs agent or host code

def test_law_2_a_call_across_the_bridge_from_the_loop_itself_raises_at_once():
    async def f():
        async def answer(): return 1
        b,t = Bridge(None, 's', asyncio.get_running_loop(), timeout=60),time.monotonic()
        with pytest.raises(RuntimeError): b.call(answer())
        return time.monotonic()-t
    assert asyncio.run(f())<SOON

def test_law_2_nothing_of_agent_host_or_gate_runs_on_the_loop(tmp_path):
    from ramabana_acp import AcpAgent, mk_agent
    from ramabana_acp.models.offline import ScriptedProvider
    from ramabana_acp.testing.editor import Inside
    ran = []
    class Watched:
        "Passes everything on, and notes what is called on a thread whose loop runs"
        def __init__(self, o): object.__setattr__(self, 'o', o)
        def __setattr__(self, k, v): setattr(self.o, k, v)
        def __getattr__(self, k):
            v = getattr(self.o, k)
            if not callable(v): return v
            def f(*a, **kw):
                try: asyncio.get_running_loop()
                except RuntimeError: return v(*a, **kw)
                ran.append(k)
                return v(*a, **kw)
            return f
    script = [[tool('view_file', 'a', path='a.txt'), tool('edit_file', 'b', path='a.txt', old='1', new='2'), tool('run_shell', 'c', command='true')], OK, [dict(text='x'), dict(sleep=60)]]
    def mk(roots, **kw):
        ag,host = mk_agent(roots, **{**kw, 'model':'demo'})
        ag._provider = ScriptedProvider(script)
        for k in ('read','load','fetch','store','write','check','run_cmd','close'): setattr(host, k, getattr(Watched(host), k))
        return Watched(ag), host
    async def go():
        (tmp_path/'a.txt').write_text('1\n')
        ed = Editor(tmp_path)
        a = AcpAgent(mk=mk, model='demo'); a.on_connect(Inside(ed))
        await a.initialize(protocol_version=1, client_capabilities=ed.caps)
        sid = (await a.new_session(cwd=str(tmp_path)))['sessionId']
        await asyncio.sleep(.05) # the commands are announced a moment later
        assert (await a.prompt([dict(type='text', text='go')], sid))['stopReason']=='end_turn'
        assert (await a.prompt([dict(type='text', text='/help')], sid))['stopReason']=='end_turn'
        t = asyncio.ensure_future(a.prompt([dict(type='text', text='more')], sid))
        while 'x' not in ed.said()[-1:]: await asyncio.sleep(.01)
        await a.cancel(sid)
        assert (await t)['stopReason']=='cancelled'
        await a.close_session(sid)
    asyncio.run(asyncio.wait_for(go(), 60))
    assert (tmp_path/'a.txt').read_text()=='2\n'
    assert set(ran)<={'commands'}, ran # a table of constants

# ---- 3: one turn, all closed, one answer, nothing after it

def test_law_3_two_prompts_in_one_write_and_a_third_of_another_session_are_each_answered_once_and_last(bare):
    a,b = bare.session([[dict(text='1'), tool('run_shell', command='true')], OK, [dict(text='2')]]),bare.session([[dict(text='3')]])
    ids = [(f'{s.sid}-{i}', s) for i,s in enumerate((a,a,b))]
    bare.raw(b''.join(json.dumps(dict(jsonrpc='2.0', id=i, method='session/prompt', params=dict(sessionId=s.sid, prompt=[dict(type='text', text='go')]))).encode()+b'\n' for i,s in ids))
    for i,_ in ids: assert bare.wait(i, 40)['stopReason']=='end_turn'
    bare.request('session/close', dict(sessionId=b.sid)) # whatever would still come has come by its answer
    assert all(len(bare.replies[i])==1 for i,_ in ids) and a.said()=='1ok2' and b.said()=='3'
    assert [c['status'] for c in a.cards.values()]==['completed'] # and `verify` sees that no update follows an answer

def test_law_3_a_broken_message_with_the_id_of_a_running_prompt_does_not_take_its_answer(bare):
    s = bare.session([[dict(text='x'), dict(sleep=60)]])
    id = s.start(); s.until(s.said)
    n = len(bare.replies.get(None, []))
    again = dict(id=id, method='session/prompt', params=dict(sessionId=s.sid, prompt=[dict(type='text', text='go')]))
    bare.raw(b''.join(json.dumps(m).encode()+b'\n' for m in ({**again, 'jsonrpc':'1.0'}, {**again, 'jsonrpc':'2.0', 'params':5}, {**again, 'jsonrpc':'2.0', 'method':'no/such'}, {**again, 'jsonrpc':'2.0'})))
    poll(lambda: len(bare.replies.get(None, []))==n+4)
    assert id not in bare.replies and all(m['error']['code'] in (-32600,-32602) for m in bare.replies[None][n:])
    s.cancel()
    assert s.wait(id)['stopReason']=='cancelled'
    bare.check.sent[f'int:{id}'] = [] # the checker took the broken ones for requests

# ---- 5: consent fails closed

NOS = dict(refused='reject_once', cancelled='cancelled', invented=dict(outcome=dict(outcome='selected', optionId='allow_all')), broken=dict(outcome='allow'), error=Remote(-32603, 'no'))
def test_law_5_every_way_of_no_is_a_no_and_the_model_is_told_which(bare):
    s = bare.session([[tool('create_file', k, path=k, text='x') for k in NOS], OK], permit=[NOS[k] for k in NOS]+['reject_once'])
    assert s.stop()=='end_turn' and not list(s.root.iterdir())
    told = dict(zip(NOS, s.results()))
    assert all(t.startswith('ERROR: ') for t in told.values()) and all(c['status']=='failed' for c in s.cards.values())
    assert len({told['refused'], told['error'], told['cancelled']})==3, told

def test_law_5_refused_timed_out_cancelled_and_interrupted_are_four_texts():
    from ramabana_acp.workspace.approvals import Approvals
    from ramabana_acp.core import Token, daemon
    said = []
    def ask(act=None, timeout=60, tok=None):
        g = Approvals()
        g.listen(lambda a: act and act(g, a, tok))
        r = g.request('run_shell', dict(command='rm x'), timeout=timeout, tok=tok)
        assert not r
        said.append(r.reply())
    ask(lambda g, a, t: g.answer(a.id, False))
    ask(timeout=.05)
    ask(lambda g, a, t: t.cancel(), tok=Token())
    ask(lambda g, a, t: g.close())
    assert len(set(said))==4, said

# ---- 6: reads fall back, writes do not, commands run once

def test_law_6_a_read_falls_back_to_the_disk_and_a_write_does_not(full):
    s = full.session([[tool('view_file', 'a', path='a.txt')], [tool('edit_file', 'b', path='a.txt', old='disk', new='x')], OK], {'a.txt':'disk\n'},
        answers={'fs/read_text_file':InternalError('not now'), 'fs/write_text_file':InternalError('not ever')})
    assert s.stop()=='end_turn'
    assert 'disk' in s.results(1)[0] and s.results()[-1].startswith('ERROR: ') and 'not ever' in s.results()[-1] and s.read('a.txt')=='disk\n'

@pytest.mark.parametrize('answer,here', [(Remote(-32601, 'no terminals'), 1), ({}, 0), (True, 0), ({'terminalId':7}, 0), (dict(terminalId=''), 0)], ids=str)
def test_law_6_a_command_that_the_editor_may_have_started_is_not_started_again(full, answer, here):
    s = full.session(one('run_shell', command='echo x >> ran'), answers={'terminal/create':answer})
    assert s.stop()=='end_turn' and (s.read('ran') or '').count('x')==here

def test_law_6_a_command_whose_terminal_is_lost_is_not_run_again(full):
    s = full.session(one('run_shell', command='echo x >> ran'), answers={'terminal/wait_for_exit':InternalError('lost'), 'terminal/output':InternalError('lost')})
    assert s.stop()=='end_turn'
    poll(lambda: s.read('ran'))
    assert s.read('ran')=='x\n' and 'lost' in s.results()[0]

# ---- 7: an edit changes its span and nothing else

BYTES = dict(crlf=b'a = 1\r\nb = 2\r\n', bom=b'\xef\xbb\xbfa = 1\nb = 2\n', latin=b'a = 1\nb = 2 # \xe9\n', utf16='a = 1\nb = 2\n'.encode('utf-16'), bare=b'a = 1\nb = 2', mixed=b'a = 1\r\nb = 2\nc\r', feed=b'a = 1\x0cb = 2\xe2\x80\xa8c\n')
@pytest.mark.parametrize('where', ['full','bare'])
def test_law_7_an_edit_keeps_every_byte_outside_its_span(where, request):
    s = request.getfixturevalue(where).session([[tool('edit_file', k, path=k, old='a = 1', new='a = 22') for k in BYTES], OK], BYTES, permit='allow_once')
    for k in BYTES: s.path(k).chmod(0o640)
    assert s.stop()=='end_turn'
    for k,b in BYTES.items():
        enc = 'utf-16-le' if k=='utf16' else 'ascii'
        assert s.path(k).read_bytes()==b.replace('a = 1'.encode(enc), 'a = 22'.encode(enc)) and s.path(k).stat().st_mode&0o777==0o640, k

def test_law_7_a_text_that_is_not_what_the_model_saw_is_not_edited(bare):
    def change(p): s.path('a.txt').write_text('n = 2\n'); return 'allow_once'
    s = bare.session([[tool('view_file', path='a.txt')], [tool('edit_file', 'e', path='a.txt', old='n = 1', new='n = 3')], OK], {'a.txt':'n = 1\n'}, permit=change)
    assert s.stop()=='end_turn' and s.read('a.txt')=='n = 2\n'
    assert re.search('changed|not found', s.results()[-1]) and s.results()[-1].startswith('ERROR: ')

# ---- 9: a secret never leaves

SECRET = 'correct-horse-battery-staple-0123456789'
def test_law_9_the_key_is_not_in_the_environment_of_a_command_nor_in_what_is_shown_of_it(models, tmp_path):
    with agent(models=models, env=dict(OPENAI_API_KEY=SECRET, OTHER=f'x{SECRET}x', MY_TOKEN='tok-abcdefgh'), **BARE) as a:
        s = a.session([[tool('run_shell', command='env; cat key.txt')], [dict(http=401, body=json.dumps(dict(error=dict(message=f'bad key {SECRET}'))))]], {'key.txt':SECRET})
        with pytest.raises(Remote) as e: s.prompt()
        out = s.results()[0]
        assert 'HOME=' in out and SECRET not in out and 'OPENAI_API_KEY' not in out and 'MY_TOKEN' not in out
        assert SECRET not in str(e.value)+json.dumps(e.value.data) and SECRET not in a.stderr+b''.join(l for _,l in a.lines).decode()

def test_law_9_a_secret_where_a_message_is_clipped_or_broken_over_lines_is_not_told_in_part(capfd):
    from ramabana_acp.core import Err, log, secret
    from ramabana_acp.editor.wire import reply
    for s in (secret(SECRET), secret('first line of it\nsecond line of it')):
        for n in range(1900, 2000, 7):
            text = 'x'*n+' '+s
            log('failed', error=text)
            said = json.dumps(reply(1, error=Err(text)))+capfd.readouterr().err
            assert s[:12] not in said and 'second line' not in said, n

# ---- 10: a failure has a code, a message, and no traceback

def test_law_10_every_failure_on_the_wire_has_a_code_and_words_for_a_person(bare):
    s = bare.session([[dict(http=500, body='<html><title>Bad</title>')]]*5+[[dict(error='overloaded_error')]])
    fails = [('session/new', dict(cwd=7)), ('session/new', dict(cwd='/nonexistent/x', mcpServers=[])), ('session/prompt', dict(sessionId='nobody', prompt=[])), ('session/prompt', dict(sessionId=s.sid)),
        ('session/prompt', dict(sessionId=s.sid, prompt=[dict(type='image', mimeType='image/png', data='!')])), ('authenticate', dict(methodId='x')), ('no/such', {}), ('initialize', dict(protocolVersion='1'))]
    for m,p in fails:
        with pytest.raises(Remote) as e: bare.request(m, p)
        assert e.value.code in (-32601,-32602,-32002) and len(str(e.value))>12 and 'Traceback' not in str(e.value) and '.py' not in str(e.value), m
    s.ed.answers.clear()
    t = bare.session([[dict(http=400, body='{"error":{"message":"max_tokens is wrong"}}')]])
    with pytest.raises(Remote) as e: t.prompt()
    assert e.value.code==-32603 and e.value.data['code']=='turn_failed' and e.value.data['kind']=='bad_request' and 'max_tokens is wrong' in str(e.value)

# ---- 11: who may import what

ROOT = Path(__file__).parent.parent/'ramabana_acp'
def imports(f):
    "The modules that file `f` imports anywhere, and those it imports at its top"
    tree = ast.parse(f.read_text())
    def of(nodes): return {n for o in nodes for n in ([a.name for a in o.names] if isinstance(o, ast.Import) else [o.module or ''] if isinstance(o, ast.ImportFrom) and not o.level else [])}
    return of(ast.walk(tree)),of(tree.body)

def test_law_11_only_the_editors_room_and_testing_know_the_ACP_library():
    bad = [str(f.relative_to(ROOT)) for f in ROOT.rglob('*.py') if f.parts[len(ROOT.parts)] not in ('editor','testing') and any(n.split('.')[0]=='acp' for n in imports(f)[0])]
    assert not bad

def test_law_11_until_the_first_answer_only_the_standard_library_is_loaded(tmp_path):
    (tmp_path/'spy.py').write_text('''
import os, runpy, sys
write = os.write
def spy(fd, b):
    if b'"protocolVersion"' in bytes(b): write(2, ('LOADED '+' '.join(sorted({m.split('.')[0] for m in sys.modules}))).encode()+b'\\n')
    return write(fd, b)
os.write = spy
runpy.run_module('ramabana_acp', run_name='__main__')
''')
    with agent(cmd=[sys.executable, '-I', tmp_path/'spy.py'], script=[OK]) as a: a.until_log('LOADED')
    loaded = next(l for l in a.stderr.splitlines() if l.startswith('LOADED')).split()[1:]
    startup = set(subprocess.run([sys.executable,'-I','-c','import sys; print(*{m.split(".")[0] for m in sys.modules})'], capture_output=True, text=True).stdout.split()) # what a .pth file of this environment loads
    assert 'ramabana_acp' in loaded and not [m for m in loaded if m not in sys.stdlib_module_names and m not in startup and m not in ('ramabana_acp','__main__')]
