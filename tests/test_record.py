"""What `--record` keeps, that no secret is in it, and that a record plays again: from the command, from any client, from a test."""
import base64, json, os, re, stat, subprocess
from functools import partial
from pathlib import Path
import pytest
from hypothesis import example, given, strategies as st
from width import examples, few_or_many, wide
from ramabana_acp.client import Remote
from ramabana_acp.core import redact, secret
from ramabana_acp.models import sse
from ramabana_acp.models.messages import user
from ramabana_acp.models.provider import mk_provider
from ramabana_acp.models.record import Exchange, Recorder, head_of, heard, model_of, read
from ramabana_acp.models.replay import exchanges, respell
from ramabana_acp.models.specs import ModelSpec, resolve
from ramabana_acp.testing.editor import EditorClient
from ramabana_acp.testing.models import FakeModel
from ramabana_acp.testing.replay import replay
from asking import APIS
from wire import PYTHON, agent, clean_env, tool

KEY = 'zx-Th1sIsNoRealKeyAtAll-9876'
first = pytest.mark.parametrize('dialect', [d if d=='chat' else pytest.param(d, marks=pytest.mark.slow) for d in APIS]) # what a dialect changes little in

def parts(key, n=7): return [key[i:i+n] for i in range(len(key)-n+1)]
def hides(text, *keys): return not [p for k in keys for p in parts(k) if p in text]
def kinds(rec, k): return [o for o in read(rec) if o['k']==k]
def last_text(told, kind='agent_message_chunk'): return [t for k,t in told['sessions'][0]['texts'] if k==kind][-1]

class Recorded:
    "An agent that records, with a model that speaks `dialect`, and an editor"
    def __init__(self, tmp, m, dialect='chat', *args, buffers=None, env=None, rec=None, home='home', **kw):
        self.rec,self.home,self.root = rec or tmp/'rec.jsonl',tmp/home,tmp/'project'
        self.root.mkdir(exist_ok=True)
        cfg = self.home/'cfg'
        cfg.mkdir(parents=True, exist_ok=True)
        url = m.base if dialect=='messages' else m.base+'/v1'
        (cfg/'config.toml').write_text(f'[models.fake]\nid = "fake-model"\napi = "{APIS[dialect]}"\nbase_url = "{url}"\nwindow = 54321\n')
        cmd = [*PYTHON, '--cfg', cfg, '--model', 'fake', '--record', self.rec, *args]
        self.c = EditorClient(cmd, self.root, env=clean_env(self.home, FAKE_API_KEY=KEY, **(env or {})), buffers=buffers, **kw)
    def __enter__(self): return self.c.__enter__()
    def __exit__(self, *args): self.c.close()

def record(tmp, script, dialect='chat', prompts=('go',), **kw):
    "One session with `prompts`, recorded; returns the record's path and the stop reasons"
    with FakeModel(script) as m:
        r = Recorded(tmp, m, dialect, **kw)
        with r as c:
            sid = c.open_session()
            return r.rec, [c.prompt(sid, p)['stopReason'] for p in prompts]

# ---------------------------------------------------------------- a record plays again

TURN = [[dict(think='Where is it?'), dict(text='I look, '), dict(text='then I change.'), tool('view_file', 't1', path='a.py')],
    [tool('edit_file', 't2', path='a.py', old='1', new='2')], [tool('run_shell', 't3', command='echo done')], [dict(text='It is '), dict(sleep=.05), dict(text='2 now.')]]

@first
def test_a_turn_with_tools_and_approvals_plays_the_same_twice(dialect, tmp_path):
    rec,stops = record(tmp_path, TURN, dialect, buffers={'a.py':'x = 1\n'})
    one,two = replay(rec, tmp_path/'now'),replay(rec, tmp_path/'again')
    assert stops==['end_turn'] and one.same and two.told==one.told, one.diff
    s = one.told['sessions'][0]
    assert [c['statuses'][-1] for c in s['cards']]==['completed']*3 and len(s['asked']['session/request_permission'])==2
    assert last_text(one.told)=='It is 2 now.' and one.told['answers'][-1]['result']=={'stopReason':'end_turn'}
    assert not (tmp_path/'now'/'a.py').exists(), 'the editor had the file, and still has it'

@first
def test_failures_retries_and_a_stream_that_is_cut_play_too(dialect, tmp_path):
    script = [[dict(http=503, body='all busy', headers={'retry-after':'0.1'})], [dict(cut=True)], [dict(text='First.')], [dict(text='Half of'), dict(sleep=.2), dict(cut='fin')]]
    with FakeModel(script) as m:
        with (r := Recorded(tmp_path, m, dialect)) as c:
            sid = c.open_session()
            assert c.prompt(sid, 'one')['stopReason']=='end_turn'
            with pytest.raises(Remote) as e: c.prompt(sid, 'two')
    out = replay(r.rec, tmp_path/'now')
    assert out.same, out.diff
    assert [x['how'] for x in kinds(r.rec, 'end')]==['done','error','done','error'] and [x['error'] for x in kinds(r.rec, 'end') if x['how']=='error']==['network','cut']
    assert 'all busy' in last_text(out.told, 'agent_thought_chunk') and [a['error']['message'] for a in out.told['answers'] if 'error' in a]==[str(e.value)]

@pytest.fixture(scope='module')
def without_files(tmp_path_factory):
    "The record of a client without files: one is written, one is looked for in vain"
    tmp = tmp_path_factory.mktemp('record').resolve()
    path = f'{tmp}/project/b.txt'
    script = [[tool('view_file', 't1', path='a.txt'), tool('create_file', 't2', path=path, text='hi\n')], [dict(text=f'I wrote {path[:20]}'), dict(text=path[20:]), dict(text='.')]]
    rec,_ = record(tmp, script, fs=False)
    assert (tmp/'project/b.txt').read_text()=='hi\n'
    return rec

def test_the_folder_of_now_stands_in_for_the_recorded_one(without_files, tmp_path):
    out = replay(without_files, tmp_path/'elsewhere')
    assert out.same, out.diff
    assert (tmp_path/'elsewhere/b.txt').read_text()=='hi\n' and last_text(out.told)=='I wrote $ROOT/b.txt.'

def test_what_has_changed_since_is_a_difference(without_files, tmp_path):
    (tmp_path/'now').mkdir()
    (tmp_path/'now/a.txt').write_text('it is there now\n')
    out = replay(without_files, tmp_path/'now')
    assert not out.same and not out.late and [l for l in out.diff.splitlines() if l[0]=='-' and 'failed' in l] and '+' in out.diff

def test_a_cancel_comes_where_it_came(tmp_path):
    with FakeModel([[dict(text='I begin.'), dict(sleep=60)], [tool('run_shell', 't1', command='sleep 60')], [dict(text='bye')]]) as m:
        with (r := Recorded(tmp_path, m, permit=[None, 'allow_once'])) as c:
            sid = c.open_session()
            id = c.start(sid, 'one')
            c.ed.until(lambda: c.ed.said())
            c.cancel(sid)
            assert c.wait(id)['stopReason']=='cancelled'
            id = c.start(sid, 'two')
            c.ed.until(lambda: c.ed.permissions)
            c.cancel(sid)
            assert c.wait(id)['stopReason']=='cancelled' and c.prompt(sid, 'three')['stopReason']=='end_turn'
    out = replay(r.rec, tmp_path/'now')
    assert out.same, out.diff
    assert [a['result'].get('stopReason') for a in out.told['answers'][-3:]]==['cancelled','cancelled','end_turn']

def test_two_sessions_and_an_image_play(tmp_path):
    png = base64.b64encode(b'\x89PNG\r\n\x1a\n'+os.urandom(9000)).decode()
    with FakeModel([[dict(text='a dot')], [dict(text='hello')]]) as m:
        with (r := Recorded(tmp_path, m)) as c:
            one,two = c.open_session(),c.new()
            c.prompt(one, [dict(type='text', text='what is it?'), dict(type='image', mimeType='image/png', data=png)])
            c.prompt(two, 'hi')
    text = r.rec.read_text()
    assert png[:60] in text and png[100:200] not in text and 'characters of base64 left out' in text and len(text)<200_000
    out = replay(r.rec, tmp_path/'now')
    assert out.same and [s['texts'][-1][1] for s in out.told['sessions']]==['a dot','hello'], out.diff

def test_a_client_that_knows_nothing_of_it_is_served_a_record(tmp_path):
    rec,_ = record(tmp_path, TURN[1:2]+TURN[3:], buffers={'a.py':'x = 1\n'})
    with agent('replay', str(rec)) as a:
        s = a.session(files={'a.py':'x = 1\n'})
        assert s.stop()=='end_turn' and s.said()=='It is 2 now.' and s.read('a.py')=='x = 2\n' and len(s.asks)==1
        assert 'holds 2 answers of a model, and this is request 3' in str(pytest.raises(Remote, s.prompt, 'more').value)

def test_the_model_of_a_record_takes_what_the_recorded_one_took_and_the_options_hold(tmp_path):
    with FakeModel([[dict(text='ok')]]) as m:
        with (r := Recorded(tmp_path, m, 'messages', '--permission-mode', 'read-only', '--workspace-only')) as c: c.prompt(c.open_session(), 'go')
    was,now = model_of(head_of(r.rec)),resolve(f'replay/{r.rec}')
    assert (was.name, was.api, was.window, was.base_url)==('fake', 'anthropic', 54321, m.base)
    assert (now.window, now.accepts, now.effort, now.key_env)==(was.window, was.accepts, was.effort, None)
    assert head_of(r.rec)['options']==dict(model='fake', permission_mode='read-only', workspace_only=True)
    out = replay(r.rec, tmp_path/'now')
    assert out.same and 'additionalDirectories' not in out.told['answers'][0]['result']['agentCapabilities']['sessionCapabilities'], out.diff

def test_counts_of_tokens_are_kept_in_a_row_of_their_own(tmp_path):
    rec,spec,h = tmp_path/'rec',ModelSpec('fake', 'fake', 'm', api='anthropic'),[user('hi')]
    with FakeModel([[dict(text='one')], [dict(text='two')]]) as m:
        p = mk_provider(spec._replace(base_url=m.base))
        sse.tap(partial(heard, Recorder(rec, p.spec)))
        try: n = p.count(h), [*p.stream(h)], p.count(h+h), [*p.stream(h)]
        finally: sse.tap(None)
    p = mk_provider(resolve(f'replay/{rec}'))
    assert (p.count(h), p.count(h+h), [*p.stream(h)], [*p.stream(h)], p.count(h))==(n[0], n[2], n[1], n[3], None) and n[0]<n[2]

# ---------------------------------------------------------------- what must not be in it

@first
def test_no_secret_is_in_a_record(dialect, tmp_path):
    other,pw = 'Gr33n-Elephants-Walk-42','hunter2hunter2'
    split = [dict(text=f'The key is {KEY[:9]}'), dict(text=KEY[9:20]), dict(sleep=.1), dict(text=f'{KEY[20:]}, ok?')]
    script = [split, [tool('run_shell', 't1', command=f'echo {other} {KEY}'), dict(text='so')], [dict(http=401, body=json.dumps(dict(error=dict(message=f'bad key {KEY}'))))]]
    with FakeModel(script) as m:
        with (r := Recorded(tmp_path, m, dialect, env=dict(OTHER_TOKEN=other), terminal=False)) as c:
            c.initialize()
            sid = c.new(mcpServers=[dict(name='m', command='x', args=[], env=[dict(name='DB_PASSWORD', value=pw)])])
            c.prompt(sid, f'my key is {KEY} and {{"password": "{pw}"}}')
            with pytest.raises(Remote): c.prompt(sid, 'go on')
    text = r.rec.read_text()
    assert hides(text, KEY, other, pw) and '[redacted]' in text
    assert not [o for o in kinds(r.rec, 'answer') if o['headers'].keys()-{'content-type','retry-after','retry-after-ms','location'}]
    assert hides(b''.join(base64.b64decode(o['base64']) for o in kinds(r.rec, 'data') if 'base64' in o).decode('latin-1'), KEY)
    assert stat.S_IMODE(r.rec.stat().st_mode)==0o600
    out = replay(r.rec, tmp_path/'now')
    assert out.told['sessions'][0]['texts']==out.was['sessions'][0]['texts'] and out.told['answers']==out.was['answers'] and not out.late

def kept(reads):
    "The bytes of an answer as a record keeps them"
    got = []
    x = Exchange(1, lambda k, **o: o, got.append)
    for b in reads: x.data(b)
    x.end()
    return b''.join(base64.b64decode(o['base64']) if 'base64' in o else o['text'].encode() for o in got)

cuts = st.lists(st.integers(0, 400), max_size=12)
SHAPES = dict(chat=lambda s: dict(choices=[dict(index=0, delta=dict(content=s))]), messages=lambda s: dict(type='content_block_delta', index=0, delta=dict(type='text_delta', text=s)),
    responses=lambda s: dict(type='response.output_text.delta', output_index=0, delta=s),
    arguments=lambda s: dict(choices=[dict(index=0, delta=dict(tool_calls=[dict(index=0, function=dict(arguments=s))]))]))

@pytest.mark.parametrize('shape', SHAPES)
@few_or_many(60, 600)
def test_a_secret_in_any_pieces_is_not_kept_and_all_else_is(shape, n):
    secret(KEY)
    @examples(n)
    @given(st.text('ab =:\n', max_size=20), st.text('xy ,é', max_size=20), cuts, cuts, st.sampled_from([KEY, 'sk-ant-abcdefghij0123456789', 'password = "Tr0ub4dor&3"']))
    def check(pre, post, words, reads, key):
        s = f'{pre} {key} {post}'
        at = sorted({min(i, len(s)) for i in words}|{0, len(s)})
        body = b''.join(b'data: '+json.dumps(SHAPES[shape](s[a:b]), ensure_ascii=False).encode()+b'\n\n' for a,b in zip(at, at[1:]))
        rs = sorted({min(i, len(body)) for i in reads}|{0, len(body)})
        out = kept([body[a:b] for a,b in zip(rs, rs[1:])])
        said = ''.join(re.findall(r'"(?:content|text|delta|arguments)": ?"((?:[^"\\]|\\.)*)"', out.decode()))
        assert json.loads(f'"{said}"')==redact(s)
    check()

@examples(100)
@given(st.binary(max_size=300), cuts)
@example(b'data: {"a":"\xe2\x80\xa8"}\r\n\r\n: \xff\n', [3])
def test_what_holds_no_secret_is_kept_byte_for_byte_but_for_a_torn_end(body, reads):
    body = b'data: {"x" : 1}\r\n\n'+body
    rs = sorted({min(i, len(body)) for i in reads}|{0, len(body)})
    out = kept([body[a:b] for a,b in zip(rs, rs[1:])])
    assert body.startswith(out) and b'\n' not in body[len(out):]

@wide(60, 1000, st.lists(st.text('/ab', max_size=5), max_size=8))
def test_a_folder_is_replaced_over_every_seam(texts):
    out = respell(texts, '/a/b', '/new')
    assert ''.join(out)==re.sub(r'/a/b(?![\w-])', '/new', ''.join(texts)) and len(out)==len(texts)

# ---------------------------------------------------------------- files that are not as they should be

def test_a_record_that_cannot_be_written_is_a_sentence(tmp_path):
    for path in (tmp_path/'no/rec.jsonl', tmp_path):
        r = subprocess.run([*PYTHON,'--model','demo','--record',path], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=clean_env(tmp_path))
        assert (r.returncode, r.stdout, len(r.stderr.splitlines()))==(2, '', 1) and f'--record {path}: ' in r.stderr

def test_an_earlier_record_is_moved_aside(tmp_path):
    rec,presets = tmp_path/'rec',('light','balanced','delivery')
    for s in presets: subprocess.run([*PYTHON,'--model','demo','--record',rec,'--preset',s], stdin=subprocess.DEVNULL, env=clean_env(tmp_path), check=True)
    assert [head_of(p)['options']['preset'] for p in (f'{rec}.1', f'{rec}.2', rec)]==[*presets]

@pytest.mark.skipif(not Path('/dev/full').exists(), reason='no /dev/full here')
def test_a_full_disk_does_not_hurt_the_turn(tmp_path):
    (tmp_path/'s.jsonl').write_text(json.dumps([dict(text='fine')]))
    with EditorClient([*PYTHON,'--model',f'scripted/{tmp_path}/s.jsonl','--record','/dev/full'], tmp_path, env=clean_env(tmp_path)) as c:
        assert c.prompt(c.open_session(), 'go')['stopReason']=='end_turn' and c.ed.said()=='fine'
    assert c.stderr.count('the record ends here')==1

def test_a_newer_format_and_what_is_no_record_are_refused_in_a_sentence(tmp_path):
    (tmp_path/'new').write_text('{"i":1,"k":"head","format":7,"more":[]}\n')
    (tmp_path/'not').write_text('hello\n')
    (tmp_path/'bad').write_text('{"i":1,"k":"head","format":1}\nbroken\n{"i":2,"k":"wire"}\n')
    for name,why in dict(new='newer ramabana-acp (format 7', none='no such file', bad='damaged in line 2', **{'not':'no record of ramabana-acp'}).items():
        r = subprocess.run([*PYTHON,'replay',name], cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=clean_env(tmp_path))
        assert (r.returncode, r.stdout, len(r.stderr.splitlines()))==(2, '', 1) and why in r.stderr, r.stderr
    with agent('--model', f'replay/{tmp_path/"new"}') as a:
        assert 'newer ramabana-acp' in str(pytest.raises(Remote, a.session).value)

def test_a_killed_agent_leaves_a_record_that_plays(tmp_path):
    with FakeModel([[dict(text='I was here and'), dict(text=' then it'), dict(sleep=60)]]) as m:
        with (r := Recorded(tmp_path, m)) as c:
            sid = c.open_session()
            c.start(sid, 'go')
            c.ed.until(lambda: 'then' in c.ed.said())
            c.kill()
    with r.rec.open('a') as f: f.write('{"i":999,"k":"wi')
    x, = exchanges(read(r.rec))
    assert x['how'] is None and b'I was here' in b''.join(x['data'])
    assert not replay(r.rec, tmp_path/'now').late
    with agent('replay', str(r.rec)) as a: # silent after what was said, as then
        s = a.session()
        id = s.start()
        s.until(lambda: 'I was here' in s.said())
        s.cancel()
        assert s.wait(id)['stopReason']=='cancelled'

def test_without_it_the_recorder_is_not_even_loaded(tmp_path):
    def loads(*args, url=''):
        with EditorClient([*PYTHON,*args], tmp_path, env=clean_env(tmp_path, PYTHONPROFILEIMPORTTIME=1, OPENAI_API_KEY=KEY, OPENAI_BASE_URL=url)) as c:
            c.prompt(c.open_session(), 'go')
        return c.stderr
    with FakeModel([[dict(text='ok')]]) as m: log = loads('--model', 'openai/fake-model', url=m.base+'/v1')
    assert 'ramabana_acp.models.record' not in log and 'ramabana_acp.models.sse' in log
    assert 'ramabana_acp.models.record' in loads('--model', 'demo', '--record', tmp_path/'r')
