"Conversations that last, as an editor sees it: listed, loaded, resumed, forked, closed and deleted, across processes"
import base64, shutil, stat
from datetime import datetime, timedelta
from wire import *
from ramabana_acp.agent.journal import Disk
from ramabana_acp.agent.library import Library
from ramabana_acp.models.messages import assistant, text as said, user

PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
KEY = 'sk-test-0123456789abcdef'
def text(s): return dict(type='text', text=s)
def image(data=PNG): return dict(type='image', mimeType='image/png', data=data)
def state(a): return Path(clean_env(a.home)['XDG_STATE_HOME'])/'ramabana-acp'
def store(a): return Library(state(a), program='the test')
def where(a, sid):
    "The folder of a stored session"
    return Path(store(a).find(sid))
def records(a, sid): return [json.loads(l) for l in (where(a, sid)/'transcript.jsonl').read_bytes().splitlines()]
def listed(a, **kw): return [r['sessionId'] for r in a.request('session/list', {k:str(v) for k,v in kw.items()})['sessions']]
def error(a, method, /, **params):
    with pytest.raises(Remote) as e: a.request(method, {k:(str(v) if isinstance(v, Path) else v) for k,v in params.items()}, 15)
    return e.value
def kinds(us): return [u['sessionUpdate'] for u in us]
def texts(us, kind): return [u['content'].get('text') for u in us if u['sessionUpdate']==kind]
def chat(us):
    "What was said in the updates `us`, pieces of one message joined"
    res = []
    for u in us:
        if not u['sessionUpdate'].endswith('_chunk'): continue
        k = u['sessionUpdate'].partition('_')[0],u.get('messageId')
        if res and res[-1][0]==k and k[0]!='user': res[-1][1] += u['content']['text']
        else: res.append([k, u['content'].get('text')])
    return [(k[0], s) for k,s in res]

@pytest.fixture
def home(tmp_path): return tmp_path.resolve()

@pytest.fixture(scope='module')
def two_processes(models, tmp_path_factory):
    home = tmp_path_factory.mktemp('two').resolve()
    both = Shared(models, home=home, **BARE),Shared(models, home=home, **BARE)
    yield both
    for s in both: s.drop()

@pytest.fixture
def two(two_processes):
    "Two processes in one home, which share nothing but what is kept there: what `close` gives free in one, the other takes up"
    with contextmanager(two_processes[0].lend)() as a, contextmanager(two_processes[1].lend)() as b: yield a,b

# ---- loading: R19 to R23

def test_R19_the_model_hears_the_earlier_turns(two):
    a,b = two
    s = a.session([OK, [dict(text='I know.')]])
    s.prompt('the word is xylophone'); s.close()
    t = Again(b, s.sid, s.root)
    assert t.stop('which word?')=='end_turn'
    heard = t.heard()
    assert heard.index('the word is xylophone')<heard.index('ok')<heard.index('which word?')

def test_R20_every_turn_is_replayed_in_order_before_the_answer_the_failed_one_too(two):
    a,b = two
    s = a.session([[dict(text='one')], [dict(http=403, body='{"error":{"message":"no"}}')], [dict(text='three')], OK])
    s.prompt('first')
    with pytest.raises(Remote): s.prompt('second')
    s.prompt('third'); s.close()
    t = Again(b, s.sid, s.root)
    assert chat(t.told)==[('user','first'), ('agent','one'), ('user','second'), ('user','third'), ('agent','three')]
    assert t.stop()=='end_turn', 'and it goes on'

def test_R21_an_unknown_id_is_not_found_and_leaves_nothing(bare):
    was = listed(bare)
    for meth in ('load','resume','fork'):
        e = error(bare, f'session/{meth}', sessionId='sess_nobody', cwd=bare.home, mcpServers=[])
        assert (e.code, e.data['sessionId'])==(-32002, 'sess_nobody')
    e = error(bare, 'session/prompt', sessionId='sess_nobody', prompt=[text('x')])
    assert e.code==-32002 and listed(bare)==was and not list(state(bare).rglob('*nobody*'))

@pytest.mark.parametrize('sid', ['..', 'a/b', '/etc', '', 'x'*500, '.trash', 'a\0b'])
def test_R21_what_is_no_id_is_not_found_either(bare, sid):
    e = error(bare, 'session/load', sessionId=sid, cwd=bare.home, mcpServers=[])
    assert e.code in (-32002,-32602) and 'Traceback' not in str(e)

def test_R22_a_session_that_is_open_here_is_shown_again_and_not_opened_twice(bare):
    s = bare.session([OK, [dict(text='on')]])
    s.prompt('hello')
    t = Again(bare, s.sid, s.root)
    assert chat(t.told)==[('user','hello'), ('agent','ok')]
    assert t.stop('more')=='end_turn' and t.said().endswith('on')
    assert len(t.requests)==2 and t.heard().count('hello')==1

def test_R22_also_when_it_is_loaded_twice_in_one_breath(two):
    a,b = two
    s = a.session([OK, OK]); s.prompt('hello'); s.close()
    ids = [b.send('session/load', dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[])) for _ in range(3)]
    for id in ids: b.wait(id)
    assert b.prompt(s.sid, 'on', 20)['stopReason']=='end_turn' and len(s.requests)==2
    b.request('session/close', dict(sessionId=s.sid))

def test_R22_and_while_its_turn_runs(bare):
    go = threading.Event()
    s = bare.session([[dict(text='a'), dict(hold=go.is_set), dict(text='b')]])
    id = s.start('hello'); s.until(s.said)
    bare.request('session/load', dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[])); go.set()
    assert s.wait(id)['stopReason']=='end_turn' and s.said().endswith('b') and len(s.requests)==1

def test_R23_a_conversation_begun_in_a_terminal_goes_on_in_the_editor(home):
    (root := home/'work').mkdir()
    (root/'a.txt').write_text('twenty-seven words\n')
    r = subprocess.run([*PYTHON, 'ask', 'read a.txt', '--root', str(root), '--model', 'demo'], env=clean_env(home), capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert r.returncode==0, r.stdout+r.stderr
    with agent('--model', 'demo', home=home, **BARE) as a:
        row, = a.request('session/list', dict(cwd=str(root)))['sessions']
        assert row['title']=='read a.txt'
        s = Again(a, row['sessionId'], root)
        assert texts(s.told, 'user_message_chunk')==['read a.txt'] and 'twenty-seven' in ''.join(strings(s.told))
        assert [u['status'] for u in s.told if u['sessionUpdate']=='tool_call']==['completed']
        assert s.stop('list')=='end_turn'

# ---- what is replayed

STORY = [[dict(think='I look first.'), dict(text='Let me look. '), tool('view_file', 'a', path='a.txt')], [tool('set_plan', 'p', items=['look','change'])],
    [tool('edit_file', 'b', path='a.txt', old='two', new='TWO'), tool('run_shell', 'c', command='echo hi; exit 3')], [tool('update_todo', 'q', id='2', status='done')], [dict(text='Done.')]]
TYPED = [text('change it\nplease'), dict(type='resource', resource=dict(uri='file:///notes.md', text='be brief', mimeType='text/markdown')), image(), dict(type='resource_link', uri='file:///b.py', name='b.py')]

@pytest.mark.parametrize('caps', [FULL, BARE], ids=['terminal','local'])
def test_C146_a_load_shows_the_whole_story_before_it_answers(home, caps):
    with agent(script=STORY, home=home, **caps) as a:
        s = a.session((), {'a.txt':'one\ntwo\n', 'AGENTS.md':'Speak of the zebra.\n'})
        s.prompt(TYPED)
        live = s.cards
        live_plan = s.ed.of('plan')[-1]
    with agent('--model', 'demo', home=home, **caps) as a:
        n = len(a.lines)
        s = Again(a, s.sid, s.root)
        us = s.told
        order = [k for k in kinds(us) if k not in ('usage_update','session_info_update','available_commands_update')]
        assert order[:4]==['user_message_chunk']*4 and [u['content'] for u in us[:4]]==TYPED
        assert order[4:7]==['agent_thought_chunk','agent_message_chunk','tool_call']
        assert order[-1]=='agent_message_chunk' and texts(us, 'agent_message_chunk')==['Let me look. ','Done.'] and texts(us, 'agent_thought_chunk')==['I look first.']
        cards = s.cards
        assert list(cards)==list(live) and all(c['status']==live[i]['status'] and c['statuses'][-1] in ('completed','failed') for i,c in cards.items())
        for i,c in cards.items(): assert [c.get(k) for k in ('title','kind','name','locations','rawInput')]==[live[i].get(k) for k in ('title','kind','name','locations','rawInput')]
        d, = [o for o in cards['b']['content'] if o['type']=='diff']
        assert (d['path'], d['oldText'], d['newText'])==(str(s.root/'a.txt'), 'one\ntwo\n', 'one\nTWO\n')
        assert 'hi' in ''.join(strings(cards['c'].get('content'))) and not [o for c in cards.values() for o in c.get('content') or [] if o['type']=='terminal']
        assert s.ed.of('plan')[-1]==live_plan
        wire_text = '\n'.join(l.decode() for _,l in a.lines[n:])
        assert 'zebra' not in wire_text and 'You are' not in wire_text and '"terminalId"' not in wire_text
        assert s.ed.of('session_info_update')[-1]['title']=='change it please'
        s.until(lambda: s.ed.of('available_commands_update'))
        listed(a) # whatever else would come has come by its answer
        assert {u['sessionUpdate'] for _,u in s.ed.updates[len(us):]}=={'available_commands_update'}

def test_C044_the_prompt_is_replayed_once_and_was_not_echoed(bare):
    s = bare.session([OK])
    s.prompt('hello')
    assert not s.said('user_message_chunk')
    assert texts(Again(bare, s.sid, s.root).told, 'user_message_chunk')==['hello']

def test_commands_and_their_answers_are_replayed_too(bare):
    s = bare.session([OK])
    s.prompt('hello'); s.prompt('/help')
    was = s.said()
    t = Again(bare, s.sid, s.root)
    assert texts(t.told, 'user_message_chunk')==['hello','/help'] and ''.join(texts(t.told, 'agent_message_chunk'))==was

def test_two_prompts_in_a_row_are_two_messages(bare):
    s = bare.session([[dict(http=403, body='{}')], OK])
    with pytest.raises(Remote): s.prompt('one')
    s.prompt('two')
    us = [u for u in Again(bare, s.sid, s.root).told if u['sessionUpdate']=='user_message_chunk']
    assert len({u.get('messageId') for u in us})==2 and None not in {u.get('messageId') for u in us}

def test_a_cancelled_turn_is_replayed_as_far_as_it_came(two):
    a,b = two
    s = a.session([[dict(text='half an '), dict(sleep=30), dict(text='answer')]])
    id = s.start('go'); s.until(lambda: 'half' in s.said()); s.cancel()
    assert s.wait(id)['stopReason']=='cancelled'
    s.close()
    assert chat(Again(b, s.sid, s.root).told)==[('user','go'), ('agent','half an ')]

def test_a_resume_replays_nothing_and_goes_on(two):
    a,b = two
    s = a.session([OK, OK]); s.prompt('the word is xylophone'); s.close()
    t = Again(b, s.sid, s.root, 'session/resume')
    assert not {u['sessionUpdate'] for u in t.told} & TURN
    assert t.stop('and?')=='end_turn' and 'xylophone' in t.heard() and not t.said('user_message_chunk')

def test_the_commands_are_told_after_a_load_and_a_resume(two):
    a,b = two
    s = a.session([OK]); s.prompt(); s.close()
    for m in ('session/load','session/resume'):
        t = Again(b, s.sid, s.root, m)
        t.until(lambda: t.ed.of('available_commands_update'))
        assert isinstance(t.result, dict)

def test_what_the_agent_says_to_the_model_is_not_replayed(bare):
    s = bare.session([[dict(usage=dict(input=5))], [dict(text='Here.')]])
    s.prompt()
    assert len(s.requests)==2, 'an empty answer is asked about once more'
    assert chat(Again(bare, s.sid, s.root).told)==[('user','go'), ('agent','Here.')]

@pytest.mark.parametrize('words', [[dict(text='Not that.')], []], ids=['with words','without'])
def test_a_refusal_is_replayed_as_it_was_shown(bare, words):
    s = bare.session([[*words, dict(stop='refusal')]])
    assert s.stop('a bad thing')=='refusal'
    assert s.said()
    assert chat(Again(bare, s.sid, s.root).told)==[('user','a bad thing'), ('agent',s.said())]

def test_a_picture_whose_file_is_gone_does_not_spoil_the_replay(two):
    a,b = two
    s = a.session([OK, OK]); s.prompt([text('look'), image()]); s.close()
    shutil.rmtree(where(a, s.sid)/'media'); shutil.rmtree(s.root/'.ramabana')
    t = Again(b, s.sid, s.root)
    us = [u['content'] for u in t.told if u['sessionUpdate']=='user_message_chunk']
    assert us[0]==text('look') and us[1]['type']=='text' and 'gone' in us[1]['text'], us
    assert t.stop()=='end_turn' and 'gone' in t.heard()

# ---- the model sees what it would have seen

class Case:
    "A first turn, what is done to it, and a second one"
    def __init__(self, script, typed='go', end=None, caps=BARE, then=None, files=None, permit='allow_once'):
        self.script,self.typed,self.end,self.caps,self.permit,self.files = script,typed,end,caps,permit,files or {}
        self.then = then or [[dict(text='more')]]

READ,EDIT_ = tool('view_file', 't1', path='a.txt'),tool('edit_file', 't2', path='a.txt', old='two', new='TWO')
def stop_at(word):
    "Cancel once `word` was said or is the name of a file"
    def f(s, id):
        poll(lambda: word in s.said() or s.path(word).exists())
        s.cancel()
    return f
CASES = dict(
    plain = Case([[dict(text='Hello.')]]),
    thinks = Case([[dict(think='Deep.', signature='seal-1'), dict(redacted='b64=='), dict(text='So '), dict(think='Deeper.', signature='seal-2'), dict(text='it is.')]]),
    tools = Case([[dict(think='Hm.', signature='seal-3'), dict(text='I look.'), READ, tool('view_file', 't2', path='none.txt')], [EDIT_, tool('run_shell', 't3', command='echo hi; exit 2')],
        [tool('set_plan', 't4', items=['a','b'])], [dict(text='Done.')]], then=[[tool('view_file', 't1', path='a.txt'), tool('update_todo', 't4', id='1', status='done')], [dict(text='ok')]], files={'a.txt':'one\ntwo\n'}),
    media = Case([[dict(text='A dot.')]], typed=[text('what is this'), image(), dict(type='resource', resource=dict(uri='file:///x/y.bin', blob='AAECAw==', mimeType='application/x-y')),
        dict(type='resource', resource=dict(uri='file:///n.md', text='hü\u2028', mimeType='text/markdown')), dict(type='resource_link', uri='file:///b.py', name='b')]),
    refused_call = Case([[tool('create_file', 't1', path='n.txt', text='x')], OK], permit='reject_once'),
    cancelled = Case([[dict(text='half '), dict(sleep=30), dict(text='x')]], end=stop_at('half')),
    cancelled_tool = Case([[dict(text='I run.'), tool('run_shell', 't1', command='touch began; sleep 30'), READ], OK], end=stop_at('began'), files={'a.txt':'one\n'}),
    failed = Case([[dict(http=403, body='{"error":{"message":"no"}}')]]),
    failed_media = Case([[dict(http=400, body='{"error":{"message":"no image"}}')]], typed=[text('look'), image()]),
    refusal = Case([[dict(text='Not that.'), dict(stop='refusal')]]),
    cut = Case([[dict(text='So long'), dict(stop='length')]]),
    cut_call = Case([[dict(text='I write.'), tool('create_file', 't1', path='n.txt', text='x'*50), dict(stop='length')], [dict(text='Less then.')]]),
    bad_call = Case([[dict(tool='view_file', id='t1', args='{"path": ')], [tool('nosuch', 't1', x=1)], [dict(text='Sorry.')]]),
    silent = Case([[dict(usage=dict(input=5))], [dict(text='Here.')]]),
    odd = Case([[dict(text='a\u2028b\0é👋'), READ], [dict(text='\n\n ok ')]], files={'a.txt':'\x1b[31mred\x1b[0m \u202e\n'}),
    command = Case([[dict(text='Hello.')]], end=lambda s, id: s.wait(id) and s.prompt('/help')))

APIS = dict(chat=('openai/fake-model', 'OPENAI', '/v1'), messages=('anthropic/claude-sonnet-5-5', 'ANTHROPIC', ''))

def turn2(a, m, sid, root, case):
    "The bodies of a second turn"
    (n := len(m.requests)),m.script.extend(json.loads(json.dumps(case.then)))
    assert a.prompt(sid, 'and then?', 30)['stopReason']=='end_turn'
    assert not m.script
    return [json.dumps(r.body) for r in m.requests[n:]]

def second_turns(m, home, model, env):
    "The bodies of a second turn after each of `CASES`; they are the same when the conversation was reopened in between"
    with agent('--model', model, env=env, home=home, **BARE) as a:
        ss = {}
        for name,case in CASES.items():
            m.script.extend(json.loads(json.dumps(case.script)))
            s = ss[name] = a.session(files=case.files, permit=case.permit)
            id = s.start(case.typed)
            if case.end: case.end(s, id)
            try: s.wait(id)
            except Remote as e: assert name.startswith('failed'), e
            m.script.clear() # what a cancelled turn did not use
            a.verify()
        shutil.copytree(home/'.state', home/'.state2')
        shutil.copytree(home/'ws', home/'ws2')
        want = {n:turn2(a, m, s.sid, s.root, CASES[n]) for n,s in ss.items()}
    shutil.rmtree(home/'ws'); (home/'ws2').rename(home/'ws')
    with agent('--model', model, env={**env, 'XDG_STATE_HOME':str(home/'.state2')}, home=home, **BARE) as a:
        for name,s in ss.items():
            Again(a, s.sid, s.root, 'session/resume' if name in ('plain','media') else 'session/load')
            assert turn2(a, m, s.sid, s.root, CASES[name])==want[name], name
    return want

@pytest.mark.parametrize('api', [pytest.param('chat', marks=pytest.mark.slow), 'messages'])
def test_the_model_is_sent_byte_for_byte_what_it_would_have_been_sent(api, home):
    model,var,v1 = APIS[api]
    with FakeModel() as m: second_turns(m, home, model, {f'{var}_BASE_URL':m.base+v1, f'{var}_API_KEY':KEY})

def test_a_reopened_session_may_overwrite_what_it_has_read(bare):
    "It was read before the break, and it is still what it was"
    s = bare.session([[tool('view_file', 'a', path='a.txt')], OK], {'a.txt':'1\n', 'b.txt':'1\n'})
    s.prompt(); s.close()
    t = Again(bare, s.sid, s.root)
    bare.models.add(s.root, [[tool('create_file', 'b', path='a.txt', text='2\n')], OK])
    t.prompt()
    assert t.read('a.txt')=='2\n', t.results()

def test_the_plan_goes_on(two):
    a,b = two
    s = a.session([[tool('set_plan', 'p', items=['look','change'])], OK, [tool('update_todo', 'q', id='1', status='done')], OK])
    s.prompt(); s.close()
    t = Again(b, s.sid, s.root)
    t.prompt()
    assert [(e['content'], e['status']) for e in t.ed.of('plan')[-1]['entries']]==[('look','completed'), ('change','pending')]

# ---- unknown, wrong, held

def test_C148_an_unknown_session(bare):
    was = {*state(bare).rglob('*')}
    for m in ('session/load','session/resume'): assert error(bare, m, sessionId='nope', cwd=bare.home, mcpServers=[]).code==-32002
    assert error(bare, 'session/prompt', sessionId='nope', prompt=[text('x')]).code==-32002
    assert error(bare, 'session/close', sessionId='nope').code==-32002
    k = len(bare.lines)
    bare.cancel('nope')
    assert bare.request('session/delete', dict(sessionId='nope'))=={}
    told = [json.loads(l) for _,l in bare.lines[k:]]
    assert len([m for m in told if 'method' not in m])==1 and 'nope' not in json.dumps(told) and {*state(bare).rglob('*')}<=was

@pytest.mark.parametrize('cwd', ['relative/x', '/no/such/dir', 'FILE', '', '~'], ids=['relative','missing','file','empty','tilde'])
def test_C149_a_cwd_that_is_no_folder_is_named(bare, cwd):
    s = bare.session([OK], {'file.txt':''})
    cwd = str(s.root/'file.txt') if cwd=='FILE' else cwd
    s.prompt(); s.close()
    was = listed(bare)
    for m,sid in (('new',{}), ('load',dict(sessionId=s.sid)), ('resume',dict(sessionId=s.sid)), ('fork',dict(sessionId=s.sid))):
        e = error(bare, f'session/{m}', cwd=cwd, mcpServers=[], **sid)
        assert e.code==-32602 and 'cwd' in str(e), m
    assert listed(bare)==was
    Again(bare, s.sid, s.root) # and nobody holds it

def test_a_session_that_another_process_has_open_is_an_error_that_names_it(two):
    a,b = two
    s = a.session([OK]*3); s.prompt()
    for m in ('session/load','session/resume','session/delete'):
        e = error(b, m, sessionId=s.sid, cwd=s.root, mcpServers=[])
        assert str(a.proc.pid) in str(e) and 'unknown' not in str(e).lower() and e.code!=-32002, m
    assert listed(b, cwd=s.root)==[s.sid], 'it can be seen all the same'
    assert s.stop()=='end_turn'
    s.close()
    t = Again(b, s.sid, s.root)
    assert t.stop()=='end_turn', 'closed there, it can be opened here'
    assert str(b.proc.pid) in str(error(a, 'session/load', sessionId=s.sid, cwd=s.root, mcpServers=[]))

def test_a_session_belongs_to_its_folder(bare):
    s = bare.session([OK]); s.prompt(); s.close()
    (other := bare.home/'ws/other').mkdir(exist_ok=True)
    e = error(bare, 'session/load', sessionId=s.sid, cwd=other, mcpServers=[])
    assert e.code==-32602 and str(s.root) in str(e)
    (link := bare.home/'ws/link').unlink(missing_ok=True); link.symlink_to(s.root)
    bare.request('session/load', dict(sessionId=s.sid, cwd=str(link), mcpServers=[]))

def test_a_session_whose_folder_is_gone_can_be_taken_elsewhere(two):
    a,b = two
    s = a.session([OK]); s.prompt(); s.close()
    shutil.rmtree(s.root)
    assert 'cwd' in str(error(b, 'session/load', sessionId=s.sid, cwd=s.root, mcpServers=[]))
    (new := b.home/'ws/moved').mkdir()
    assert texts(Again(b, s.sid, new).told, 'user_message_chunk')==['go']

def test_a_load_changes_nothing_in_the_list(two):
    a,b = two
    ss = [a.session([OK]) for _ in range(2)]
    for s in ss: s.prompt(); s.close()
    was = [r for r in a.request('session/list', {})['sessions'] if r['sessionId'] in {s.sid for s in ss}]
    Again(b, ss[0].sid, ss[0].root).close(); Again(b, ss[0].sid, ss[0].root, 'session/resume').close()
    for x in two: assert [r for r in x.request('session/list', {})['sessions'] if r['sessionId'] in {s.sid for s in ss}]==was

def breath(a, *asks):
    "Send requests in one write; their answers"
    ids = [f'b{time.monotonic_ns()}-{i}' for i in range(len(asks))]
    a.raw(b''.join(json.dumps(dict(jsonrpc='2.0', id=i, method=m, params=p)).encode()+b'\n' for i,(m,p) in zip(ids, asks)))
    return [a.reply(i, 20) for i in ids]

def test_a_close_and_a_load_in_one_breath_while_a_turn_runs(bare):
    s = bare.session([*one('run_shell', command='touch began; sleep 30'), OK])
    id = s.start(); poll(lambda: s.path('began').exists())
    load = dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[])
    rs = breath(bare, ('session/close', dict(sessionId=s.sid)), ('session/load', load))
    assert s.wait(id)['stopReason']=='cancelled' and all('result' in r for r in rs), rs
    bare.models.add(s.root, [OK])
    assert bare.prompt(s.sid, 'on', 20)['stopReason']=='end_turn'

def test_a_load_and_a_delete_in_one_breath_leave_nothing(two):
    a,b = two
    s = a.session([OK]); s.prompt(); s.close()
    breath(b, ('session/load', dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[])), ('session/delete', dict(sessionId=s.sid)))
    assert error(b, 'session/prompt', sessionId=s.sid, prompt=[text('x')]).code==-32002
    assert listed(b, cwd=s.root)==listed(a, cwd=s.root)==[] and not list(state(a).rglob(f'{s.sid}*'))

def test_a_wrong_cwd_is_refused_for_a_session_that_is_open_too(bare):
    s = bare.session([OK]); s.prompt()
    for cwd in ('relative', '/no/such/dir'):
        for m in ('session/load','session/resume'): assert error(bare, m, sessionId=s.sid, cwd=cwd, mcpServers=[]).code==-32602

PARAMS = [dict(), dict(cwd=None), dict(cwd=5), dict(cwd='$ROOT'), dict(cwd='$ROOT', mcpServers=None), dict(cwd='$ROOT', mcpServers=5), dict(cwd='$ROOT', mcpServers=[5]), dict(cwd='$ROOT', mcpServers=[dict(name='x')]),
    dict(cwd='$ROOT', mcpServers=[], additionalDirectories=['/tmp']), dict(cwd='$ROOT', mcpServers=[], additionalDirectories='x'), dict(cwd='$ROOT', mcpServers=[], additionalDirectories=None),
    dict(cwd='$ROOT', mcpServers=[], _meta=dict(sessionId='EVIL', cwd='/etc')), dict(cwd='$ROOT', mcpServers=[], messageId=5), dict(cwd='$ROOT', mcpServers=[], messageId='m_nobody')]

def test_every_answer_is_the_same_before_and_after_the_library_has_loaded(home):
    with agent('--model', 'demo', home=home, **BARE) as a: s = a.session(); s.prompt('/help')
    asks = [ask for m in ('load','resume','fork') for p in PARAMS if m!='fork' or 'messageId' in p for ask in ((f'session/{m}', dict(sessionId=s.sid) | fill(p, s.root)), ('session/close', dict(sessionId=s.sid)))]
    asks += [('session/list', p) for p in ({}, dict(cwd=None, cursor=None), dict(cwd=5), dict(cursor=5), dict(cursor='x'), dict(cwd=str(s.root), _meta=dict(cwd='/etc')))]
    asks += [('session/load', dict(sessionId=5)), ('session/load', {}), ('session/delete', {}), ('session/delete', dict(sessionId=5)), ('session/delete', dict(sessionId='nobody')), ('logout', {}), ('logout', dict(x=1))]
    def answers(a): return [{k:v for k,v in a.reply(a.send(m, p), 20).items() if k!='id'} for m,p in asks]
    with agent('--model', 'demo', home=home, **BARE) as a: early = answers(a)
    with agent(cmd=[sys.executable, '-c', 'import acp, sys; from ramabana_acp.entry import run; run(sys.argv[1:])', '--model', 'demo'], home=home, **BARE) as a: late = answers(a)
    for ask,x,y in zip(asks, early, late): assert x==y, ask

# ---- a file that is not as it was left

def goes_on(two, spoil):
    "A conversation of three turns whose file `spoil(bytes)` gets: it is loaded, goes on, and is loaded again"
    a,b = two
    s = a.session([*[[dict(text=f'answer {i}')] for i in range(3)], OK])
    for i in range(3): s.prompt(f'prompt {i}')
    s.close()
    p = where(a, s.sid)/'transcript.jsonl'
    p.write_bytes(spoil(p.read_bytes()))
    for k,x in enumerate((b, a)):
        t = Again(x, s.sid, s.root)
        want = [w for i in range(3) for w in (('user',f'prompt {i}'), ('agent',f'answer {i}'))]+[('user','one more'), ('agent','ok')]*k
        assert chat(t.told)==want
        row, = x.request('session/list', dict(cwd=str(s.root)))['sessions']
        assert row['title']=='prompt 0'
        if k: return
        assert t.stop('one more')=='end_turn'
        t.close()
        for l in p.read_bytes().splitlines(): assert json.loads(l)

def test_C151_nul_bytes_of_a_power_cut_cost_nothing_else(two):
    def nul(b):
        ls = b.splitlines(True)
        return b''.join([*ls[:4], b'\0'*500+b'\n', *ls[4:]])
    goes_on(two, nul)

def test_C151_nul_bytes_at_the_end(two): goes_on(two, lambda b: b[:-60]+b'\0'*60)

def test_C152_a_torn_last_line_is_not_glued_to_the_next(two): goes_on(two, lambda b: b[:-10])

def test_C158_a_full_disk_is_told_and_the_turn_ends_with_its_answer(home):
    import resource
    cmd = ['/bin/sh', '-c', 'ulimit -S -f 8; exec "$0" "$@"', *PYTHON]
    big = 'x'*3000
    with agent(cmd=cmd, script=[[dict(text=big)]]*3+[[dict(text='last')]], home=home, **BARE) as a:
        s = a.session()
        for _ in range(3): assert s.stop(big)=='end_turn'
        assert re.search('not being saved', s.said()) and s.said().count(big)==3
        if not hasattr(resource, 'prlimit'): return
        resource.prlimit(a.proc.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,)*2)
        n = s.said().count('not being saved')
        assert s.stop('now there is room')=='end_turn' and s.said().count('not being saved')==n
    with agent('--model', 'demo', home=home, **BARE) as a:
        t = Again(a, s.sid, s.root)
        assert texts(t.told, 'user_message_chunk')==[big]*3+['now there is room'] and t.said().count(big)==3 and t.said().endswith('last')

# ---- the list

@pytest.fixture(scope='module')
def many(tmp_path_factory):
    "A home with 121 stored sessions: 120 of one time about one folder, one older about another"
    home = tmp_path_factory.mktemp('many').resolve()
    for d in ('a','b'): (home/d).mkdir()
    class Quick(Disk):
        def sync(self, fd, name): pass
        def folder(self, path): pass
    lib = Library(Path(clean_env(home)['XDG_STATE_HOME'])/'ramabana-acp', disk=Quick())
    def put(sid, cwd, at):
        h = lib.new(sid, cwd)
        h.prompt([text(f'about {sid}')])
        h.messages += [user('x'), assistant([said('y')])]
        h.end('end_turn')
        h.updated = at
        h.meta(); h.close()
    put('old', home/'b', 1_700_000_000)
    for i in range(120): put(f's{i:03}', home/'a', 1_750_000_000)
    with agent('--model', 'demo', home=home, **BARE) as a: yield a,home

def walk(a, **kw):
    pages,cur = [],None
    while True:
        r = a.request('session/list', {**{k:str(v) for k,v in kw.items()}, **({'cursor':cur} if cur else {})})
        pages.append(r['sessions'])
        if 'nextCursor' not in r: return pages
        cur = r['nextCursor']
        assert len(pages)<20 and isinstance(cur, str) and cur

def test_C154_pages_of_equal_times_miss_and_double_nothing(many):
    a,home = many
    pages = walk(a)
    rows = [r for p in pages for r in p]
    assert len(rows)==len({r['sessionId'] for r in rows})==121 and len(pages)>1 and rows[-1]['sessionId']=='old'
    assert [r['updatedAt'] for r in rows]==sorted((r['updatedAt'] for r in rows), reverse=True)

def test_C154_a_session_that_begins_during_the_walk_does_not_break_it(many):
    a,home = many
    r = a.request('session/list', {})
    (home/'c').mkdir()
    s = a.session(root=home/'c'); s.prompt('/help')
    rest = []
    while 'nextCursor' in r: r = a.request('session/list', dict(cursor=r['nextCursor'])); rest += r['sessions']
    assert s.sid not in {x['sessionId'] for x in rest} and a.request('session/list', {})['sessions'][0]['sessionId']==s.sid
    a.request('session/delete', dict(sessionId=s.sid))
    assert len([r for p in walk(a) for r in p])==121

def test_C155_the_filter_comes_before_the_pages(many):
    a,home = many
    (home/'to-b').symlink_to(home/'b')
    for cwd in (home/'b', f'{home}/b/', home/'to-b', f'{home}/a/../b'):
        r = a.request('session/list', dict(cwd=str(cwd)))
        assert [x['sessionId'] for x in r['sessions']]==['old'] and 'nextCursor' not in r, cwd
    assert len([r for p in walk(a, cwd=home/'a') for r in p])==120
    r = a.request('session/list', dict(cwd='/kit/no/such'))
    assert r['sessions']==[] and 'nextCursor' not in r

@pytest.mark.parametrize('params', [dict(cursor='x'), dict(cursor=''), dict(cursor='W10='), dict(cursor='x'*10_000), dict(cursor=5), dict(cwd='relative'), dict(cwd=''), dict(cwd=5), dict(cwd='a\0b')], ids=lambda p: repr(p)[:30])
def test_a_wrong_cursor_or_cwd_is_refused(bare, params):
    e = error(bare, 'session/list', **params)
    assert e.code==-32602 and list(params)[0] in str(e)

def test_a_row_has_all_that_an_editor_shows(bare):
    s = bare.session([OK, OK])
    assert listed(bare, cwd=s.root)==[], 'nothing was said in it'
    s.prompt('first things first')
    row, = bare.request('session/list', dict(cwd=str(s.root)))['sessions']
    assert (row['sessionId'], row['cwd'], row['title'])==(s.sid, str(s.root), 'first things first')
    t = datetime.fromisoformat(row['updatedAt'])
    assert t.utcoffset() is not None and abs(datetime.now(t.tzinfo)-t)<timedelta(seconds=30)
    t2 = bare.session([OK], root=s.root); t2.prompt('second')
    assert listed(bare, cwd=s.root)==[t2.sid, s.sid]
    time.sleep(.01); s.prompt('again')
    assert listed(bare, cwd=s.root)==[s.sid, t2.sid], 'the one that went on last comes first'
    s.close()
    assert listed(bare, cwd=s.root)==[s.sid, t2.sid], 'closed is not gone'

def test_C160_a_title_is_one_clean_line(bare):
    s = bare.session([OK, OK])
    s.prompt('\x1b[31mFix\nthe \u202ebug\u202c '+'x'*300)
    row, = bare.request('session/list', dict(cwd=str(s.root)))['sessions']
    assert row['title'].startswith('Fix the bug xxx') and len(row['title'])<=100 and not re.search('[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]', row['title'])
    assert datetime.fromisoformat(row['updatedAt']).utcoffset() is not None and os.path.isabs(row['cwd'])

# ---- titles and usage

def test_the_title_is_told_with_the_first_prompt_and_can_be_set(two):
    a,b = two
    s = a.session([OK]*3)
    s.prompt('Mend the\nparser')
    assert [i['title'] for i in s.ed.of('session_info_update')]==['Mend the parser']
    s.prompt('and the lexer')
    assert len(s.ed.of('session_info_update'))==1, 'the second prompt gives no other'
    s.prompt('/title  The \x1b[1mgreat\x1b[0m parser')
    assert s.ed.of('session_info_update')[-1]['title']=='The great parser' and len(s.requests)==2, 'a command asks no model'
    assert a.request('session/list', dict(cwd=str(s.root)))['sessions'][0]['title']=='The great parser'
    s.close()
    t = Again(b, s.sid, s.root)
    assert t.ed.of('session_info_update')[-1]['title']=='The great parser'
    t.prompt('more')
    assert b.request('session/list', dict(cwd=str(s.root)))['sessions'][0]['title']=='The great parser'

def test_titles_can_be_switched_off(home):
    (cfg := home/'.config/ramabana-acp').mkdir(parents=True)
    (cfg/'config.toml').write_text('titles = "off"\n')
    with agent(script=[OK], home=home, **BARE) as a:
        s = a.session(); s.prompt('a secret plan')
        assert not s.ed.of('session_info_update') and 'title' not in a.request('session/list', {})['sessions'][0]

def test_usage_is_told_after_each_answer_of_the_model(bare):
    s = bare.session([[dict(usage=dict(input=1000, output=20)), tool('ls', 'a')], [dict(usage=dict(input=1100, output=30)), dict(text='ok')]])
    s.prompt()
    us = s.ed.of('usage_update')
    assert len(us)>=2 and us[-1]['used']>=us[0]['used']>=1000 and all(u['size']>=u['used'] for u in us)
    t = Again(bare, s.sid, s.root)
    assert t.ed.of('usage_update')[-1]==us[-1]

def test_cost_is_told_where_the_price_is_known(home):
    with FakeModel([[dict(usage=dict(input=1_000_000, output=10)), dict(text='a')]]*2) as m:
        with agent('--model', 'openai/gpt-5.4', env=dict(OPENAI_BASE_URL=f'{m.base}/v1', OPENAI_API_KEY=KEY), home=home, **BARE) as a:
            s = a.session(); s.prompt()
            c = s.ed.of('usage_update')[-1]['cost']
            assert c['currency']=='USD' and c['amount']>0
            s.close()
            t = Again(a, s.sid, s.root); t.prompt()
            assert t.ed.of('usage_update')[-1]['cost']['amount']>c['amount']*1.9, 'the money of the whole conversation'

# ---- close and delete

def test_C161_a_close_in_the_middle_of_a_turn_keeps_what_was(bare):
    s = bare.session([[dict(text='I run it.'), tool('run_shell', 't', command='touch began; sleep 30')], OK])
    id = s.start(); poll(lambda: s.path('began').exists())
    assert s.close()=={}
    assert s.wait(id)['stopReason']=='cancelled'
    poll(lambda: not bare.offspring())
    t = Again(bare, s.sid, s.root)
    assert chat(t.told)==[('user','go'), ('agent','I run it.')] and t.card()['status']=='failed'
    bare.models.add(s.root, [OK])
    assert t.stop('on')=='end_turn'

def big_output(s):
    "The file that holds the whole output of a command"
    return [p for r in s.results() for p in re.findall(r'(/[^\s\]]*)', r) if os.path.isfile(p)]

def test_delete_leaves_no_byte(two):
    (a,b),mark = two,'quetzalcoatl'
    s = a.session([[tool('run_shell', 'a', command=f'for i in $(seq 9000); do echo {mark} $i; done')], [dict(text=mark)]], {'keep.txt':'mine\n'})
    s.prompt([text(f'{mark} look'), image(), dict(type='resource', resource=dict(uri='file:///x.bin', blob=base64.b64encode(mark.encode()).decode()))])
    spilled = big_output(s)
    assert spilled, s.results()[0][-300:]
    kept = [p for p in (s.root/'.ramabana/attachments').iterdir() if p.name!='.gitignore']
    assert len(kept)==2
    assert a.request('session/delete', dict(sessionId=s.sid))=={}
    for x in (a, b): assert listed(x, cwd=s.root)==[] and error(x, 'session/load', sessionId=s.sid, cwd=s.root, mcpServers=[]).code==-32002
    assert error(a, 'session/prompt', sessionId=s.sid, prompt=[text('x')]).code==-32002
    assert not [p for p in kept if p.exists()] and s.read('keep.txt')=='mine\n'
    for p in a.home.rglob('*'): assert p.name!=s.sid and not (p.is_file() and mark.encode() in p.read_bytes()), p
    assert not [p for p in spilled if os.path.exists(p)]

def test_delete_ends_a_turn_that_runs(bare):
    s = bare.session(one('run_shell', command='touch began; sleep 30'))
    id = s.start(); poll(lambda: s.path('began').exists())
    assert bare.request('session/delete', dict(sessionId=s.sid))=={}
    assert s.wait(id)['stopReason']=='cancelled' and listed(bare, cwd=s.root)==[]
    poll(lambda: not bare.offspring())
    assert bare.request('session/delete', dict(sessionId=s.sid))=={}, 'twice is no error'

def test_a_deletion_that_could_not_finish_is_finished_by_the_next_process(home):
    with agent('--model', 'demo', home=home, **BARE) as a:
        s = a.session(); s.prompt('/help')
        d = where(a, s.sid)
    (trash := d.parent.parent/'.trash').mkdir(exist_ok=True)
    d.rename(trash/f'{s.sid}.x')
    with agent('--model', 'demo', home=home, **BARE) as a:
        assert listed(a)==[]
        poll(lambda: not list(trash.iterdir()))

# ---- fork

def test_a_fork_has_the_same_past_and_a_future_of_its_own(two):
    a,b = two
    s = a.session([[dict(text='one')], [dict(text='two')], [dict(text='fork')], [dict(text='three')]])
    s.prompt('first'); s.prompt('second')
    f = a.request('session/fork', dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[]))['sessionId']
    assert f!=s.sid
    a.prompt(f, 'in the fork', 20)
    assert all(w in s.heard() for w in ('first','one','second','two','in the fork'))
    s.prompt('third')
    assert 'in the fork' not in s.heard() and 'third' in s.heard()
    assert set(listed(a, cwd=s.root))=={s.sid, f}
    a.request('session/delete', dict(sessionId=s.sid)); a.request('session/close', dict(sessionId=f))
    t = Again(b, f, s.root)
    assert chat(t.told)==[('user','first'), ('agent','one'), ('user','second'), ('agent','two'), ('user','in the fork'), ('agent','fork')]

def test_a_fork_at_a_message_ends_with_that_message(bare):
    s = bare.session([[dict(text='one')], [dict(text='two')]])
    s.prompt('first')
    mid = s.ed.of('agent_message_chunk')[-1]['messageId']
    s.prompt('second')
    f = bare.request('session/fork', dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[], messageId=mid))['sessionId']
    t = Again(bare, f, s.root)
    assert chat(t.told)==[('user','first'), ('agent','one')]
    e = error(bare, 'session/fork', sessionId=s.sid, cwd=s.root, mcpServers=[], messageId='m_nobody')
    assert e.code==-32602
    bare.request('session/close', dict(sessionId=f))

def test_a_fork_while_a_turn_runs_is_a_legal_past(bare):
    s = bare.session([[dict(text='I run it.'), tool('run_shell', 't', command='touch began; until [ -e go ]; do sleep .02; done; echo done')], [dict(text='It is done.')]])
    id = s.start(); poll(lambda: s.path('began').exists())
    f = bare.request('session/fork', dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[]))['sessionId']
    s.path('go').touch()
    assert s.wait(id)['stopReason']=='end_turn' and s.said()=='I run it.It is done.'
    t = Again(bare, f, s.root)
    assert chat(t.told)==[('user','go'), ('agent','I run it.')] and t.card()['status']=='failed'
    bare.models.add(s.root, [OK])
    assert t.stop('on')=='end_turn'

def test_a_fork_shares_pictures_that_each_can_lose(bare):
    s = bare.session([OK]); s.prompt([text('look'), image()])
    f = bare.request('session/fork', dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[]))['sessionId']
    bare.request('session/delete', dict(sessionId=s.sid))
    t = Again(bare, f, s.root)
    assert [u['content'] for u in t.told if u['sessionUpdate']=='user_message_chunk']==[text('look'), image()]
    bare.models.add(s.root, [OK]); t.prompt()
    assert PNG in json.dumps(t.requests[-1]['messages'])
    bare.request('session/delete', dict(sessionId=f))

# ---- the halves of other cases that wait for a conversation that is kept

def test_C011_an_editor_that_leaves_in_the_middle_of_a_command(two):
    b2,b = two
    with agent(script=[[tool('run_shell', 't1', command="sh -c 'touch began; sleep 60; echo late > late.txt' & sleep 60")], OK], home=b.home, **BARE) as a:
        s = a.session(root=a.home/'ws/c011')
        s.start(); poll(lambda: s.path('began').exists())
        assert a.close()==0
        poll(lambda: not {*a.offspring()}-{b.proc.pid, b2.proc.pid})
    recs = records(b, s.sid)
    r = [r['r'] for r in recs if r['k']=='result'][-1]
    assert r['id']=='t1' and re.search('cancelled|interrupted', r['text']) and recs[-1]['k']=='end'
    assert [r['state'] for r in recs if r['k']=='card'][-1]=='failed'
    b.models.add(s.root, [OK])
    t = Again(b, s.sid, s.root)
    assert t.card()['status']=='failed'
    assert t.stop('on')=='end_turn' and re.search('cancelled|interrupted', t.results()[0]) and t.read('late.txt') is None

def test_C013_a_reader_that_goes_away_leaves_a_conversation_that_is_saved(two):
    _,b = two
    slow = [e for i in range(20) for e in (dict(sleep=.1), dict(text=f'c{i}'))]
    with agent(script=[[dict(text='a'), dict(text='b'), *slow]], home=b.home, rc=None, strict=False, **BARE) as a:
        s = a.session(root=a.home/'ws/c013')
        s.start('hello'); s.until(lambda: 'b' in s.said())
        a.hang_up(stdin=False)
        a.put(id='last', method='_last')
        assert a.leaves()==0 and 'Traceback' not in a.stderr
    b.models.add(s.root, [OK])
    t = Again(b, s.sid, s.root)
    got = chat(t.told)
    assert got[0]==('user','hello') and got[1][1].startswith('ab')
    assert t.stop('on')=='end_turn'

def test_C071_always_ends_with_the_process(two):
    a,b = two
    edit = [[tool('create_file', 'a', path='x.txt', text='1')], OK]
    s = a.session([*edit, [tool('edit_file', 'b', path='x.txt', old='1', new='2')], OK], permit='allow_always'); s.prompt()
    o = a.session(edit, permit='reject_once'); o.prompt()
    assert len(o.asks)==1 and o.read('x.txt') is None
    s.close()
    t = Again(b, s.sid, s.root, permit='reject_once')
    t.prompt()
    assert len(t.asks)==1 and t.read('x.txt')=='1'

# ---- where it is kept

def test_the_answer_says_where_the_conversation_is_kept(bare):
    s = bare.session([OK, [dict(text='x'), dict(sleep=30)]])
    r = s.prompt()
    p = Path(r['_meta']['ramabana']['transcriptPath'])
    assert p.is_absolute() and p==where(bare, s.sid)/'transcript.jsonl'
    assert json.loads(p.read_bytes().splitlines()[-1])['k']=='end', 'and it is there before the answer is'
    id = s.start(); s.until(lambda: 'x' in s.said()); s.cancel()
    assert s.wait(id)['_meta']['ramabana']['transcriptPath']==str(p)
    assert stat.S_IMODE(p.stat().st_mode)==0o600 and stat.S_IMODE(p.parent.stat().st_mode)==0o700

def test_a_session_in_which_nothing_was_said_leaves_nothing(home):
    with agent('--model', 'demo', home=home, **BARE) as a:
        s = a.session()
        with pytest.raises(Remote): s.prompt([image('@@')])
        s.close()
    assert not [p for p in (home/'.state').rglob('*') if p.is_file() and s.sid in str(p)]

def test_a_key_is_in_no_file(bare):
    s = bare.session([[tool('run_shell', 'a', command=f'echo {KEY}')], [dict(text=f'It is {KEY}.')]])
    s.prompt(f'remember {KEY}'); s.close()
    assert where(bare, s.sid)
    for p in (bare.home/'.state').rglob('*'): assert not (p.is_file() and KEY.encode() in p.read_bytes()), p

# ---- attachments

def test_a_picture_is_kept_named_and_sent(bare):
    s = bare.session([OK])
    subprocess.run(['git','init','-q'], cwd=s.root, check=True, env={**os.environ, 'GIT_CONFIG_GLOBAL':'/dev/null', 'GIT_CONFIG_SYSTEM':'/dev/null'})
    s.prompt([text('what is this'), image(), dict(type='resource', resource=dict(uri='file:///x/data.xyz', blob=base64.b64encode(b'\0\1\2').decode(), mimeType='application/x-y'))])
    kept = {p.suffix:p for p in (s.root/'.ramabana/attachments').iterdir() if p.name!='.gitignore'}
    assert kept['.png'].read_bytes()==base64.b64decode(PNG) and kept['.xyz'].read_bytes()==b'\0\1\2'
    assert PNG in json.dumps(s.requests[0]['messages']) and all(f'.ramabana/attachments/{p.name}' in s.heard() for p in kept.values())
    assert 'AAEC' not in s.heard()
    st = subprocess.run(['git','status','--porcelain','--untracked-files=all'], cwd=s.root, capture_output=True, text=True)
    assert st.stdout=='' and st.returncode==0

def test_a_picture_the_model_does_not_take_is_kept_and_named(bare):
    (f := bare.home/'.config/ramabana-acp/config.toml').parent.mkdir(parents=True, exist_ok=True)
    f.write_text(f'[models.blind]\nbase_url = "{bare.models.base}/v1"\nid = "fake-model"\naccepts = ["text"]\nwindow = 100000\nmax_output = 1000\n')
    try:
        s = bare.session([OK])
        bare.request('session/set_config_option', dict(sessionId=s.sid, configId='model', value='blind'))
        s.prompt([text('what is this'), image()])
    finally: f.unlink()
    p, = [p for p in (s.root/'.ramabana/attachments').iterdir() if p.name!='.gitignore']
    assert PNG not in json.dumps(s.requests[0]['messages']) and p.name in s.heard() and 'does not take' in s.heard()

@pytest.mark.parametrize('block', [image('@@'), image(base64.b64encode(b'no picture').decode()), dict(type='resource', resource=dict(uri='file:///x', blob='@@'))], ids=['not base64','no picture','no blob'])
def test_what_cannot_be_kept_is_refused_and_nothing_is_left(bare, block):
    s = bare.session([OK])
    with pytest.raises(Remote) as e: s.prompt([text('look'), image(), block])
    assert e.value.code==-32602 and not s.requests and not (s.root/'.ramabana').exists() and listed(bare, cwd=s.root)==[]

def test_an_attachment_goes_nowhere_through_a_link(bare):
    (out := bare.home/'ws/outside').mkdir(exist_ok=True)
    s = bare.session([OK])
    (s.root/'.ramabana').symlink_to(out)
    assert s.stop([text('look'), image()])=='end_turn'
    assert not list(out.iterdir()) and PNG in json.dumps(s.requests[0]['messages'])

# ---- sign-in

def unsigned(**kw): return agent(init=False, **BARE, **kw)

def test_no_key_is_the_error_that_asks_to_sign_in_and_says_how():
    with unsigned() as a:
        a.initialize(dict(auth=dict(terminal=True)))
        e = error(a, 'session/new', cwd=a.home, mcpServers=[])
        assert e.code==-32000 and e.data['code']=='auth.missing_key' and 'ramabana-setup' in e.data['methods'] and 'ANTHROPIC_API_KEY' in e.data['env']

def test_the_terminal_method_is_for_clients_that_have_a_terminal_for_it():
    with unsigned() as a:
        for caps,there in ((dict(auth=dict(terminal=True)),True), (dict(auth=dict(terminal=False)),False), (dict(auth={}),False), (dict(auth=None),False), (dict(terminal=True),False), ({},False)):
            ms = {m['id']:m for m in a.initialize(caps)['authMethods']}
            assert 'demo' in ms and ('ramabana-setup' in ms)==there, caps
            if there: assert ms['ramabana-setup']['type']=='terminal' and ms['ramabana-setup']['args']==['setup']
            assert error(a, 'authenticate', methodId='ramabana-setup').code==-32602
            assert error(a, 'session/new', cwd=a.home, mcpServers=[]).data['methods']==list(ms)
        assert a.request('authenticate', dict(methodId='demo'))=={} and a.new(a.home)

def test_a_missing_key_keeps_no_conversation_shut(two):
    a,_ = two
    s = a.session([OK]); s.prompt('hello'); s.close()
    with unsigned(home=a.home) as c:
        c.initialize({})
        assert listed(c, cwd=s.root)==[s.sid]
        assert error(c, 'session/load', sessionId=s.sid, cwd=s.root, mcpServers=[]).code==-32000
        c.request('authenticate', dict(methodId='demo'))
        assert texts(Again(c, s.sid, s.root).told, 'user_message_chunk')==['hello'], 'and the first try holds nothing'

def test_logout_removes_what_setup_wrote_and_nothing_else(models, home):
    (cfg := home/'.config/ramabana-acp').mkdir(parents=True)
    (cfg/'.env').write_text('MINE=1\n')
    r = subprocess.run([*PYTHON, 'setup', '--provider', 'openai', '--base-url', f'{models.base}/v1', '--model', 'fake-model', '--key-stdin', '--no-check'],
        env=clean_env(home), input=KEY, capture_output=True, text=True, timeout=60)
    assert r.returncode==0, r.stderr
    with agent(home=home, **BARE) as a:
        assert a.info['agentCapabilities']['auth']['logout']=={}
        assert a.new(a.home)
        assert a.request('logout')=={}
        assert (cfg/'.env').read_text()=='MINE=1\n'
        assert error(a, 'session/new', cwd=a.home, mcpServers=[]).code==-32000
        assert a.request('logout')=={}

def test_a_key_that_is_rejected_is_named_and_does_not_latch(home):
    (cfg := home/'.config/ramabana-acp').mkdir(parents=True)
    (cfg/'.env').write_text('OPENAI_API_KEY=zx-wrong-0123456789\n')
    with FakeModel([[dict(http=401, body='{"error":{"message":"Incorrect API key provided: zx-wrong-0123456789"}}')]]*2+[[dict(text='in')]]) as m:
        with agent('--model', 'openai/fake-model', env=dict(OPENAI_BASE_URL=f'{m.base}/v1'), home=home, **BARE) as a:
            s = a.session()
            for i in (1,2):
                with pytest.raises(Remote) as e: s.prompt('hello')
                d = e.value.data
                assert (e.value.code, d['code'], d['kind'], d['status'], d['retryable'])==(-32603, 'turn_failed', 'auth.rejected', 401, False) and 'zx-wrong' not in str(e.value)+json.dumps(d)
                assert len(m.requests)==i
            (cfg/'.env').write_text('OPENAI_API_KEY=zx-right-0123456789\n')
            assert s.stop('hello')=='end_turn' and s.said().endswith('in')
            assert m.requests[-1].headers['authorization']=='Bearer zx-right-0123456789', 'the key is read again'

def test_what_is_advertised_is_served(bare):
    c = bare.info['agentCapabilities']
    assert c['loadSession'] is True and {k for k,v in c['sessionCapabilities'].items() if v=={}}>={'list','resume','close','delete'}
    assert c['auth']['logout']=={} and c['_meta']['ramabana']['sessionFork']
