"Faults that people reported of agents like this one, as an editor would meet them; each by its number"
from wire import *
from width import few_or_many

def hello(v=1): return json.dumps(dict(jsonrpc='2.0', id=0, method='initialize', params=dict(protocolVersion=v))).encode()+b'\n'
def text(s): return dict(type='text', text=s)
def only(name, *answers):
    "Script the reads of one file and leave the others alone"
    xs = list(answers)
    return lambda p: (xs.pop(0) if len(xs)>1 else xs[0]) if p['path'].endswith(name) else ...

def noise(body):
    "A command that runs the agent with `body` at the beginning of every turn, as a careless library would"
    return [sys.executable, '-c', f'''
import logging, os, runpy, subprocess, sys, warnings
from ramabana_acp.agent import agent
def noisy(f):
    def g(self, *a, **kw):
        {body}
        return f(self, *a, **kw)
    return g
agent.Agent.stream = noisy(agent.Agent.stream)
runpy.run_module('ramabana_acp', run_name='__main__')
''']

# ---- transport

def test_C001_a_line_of_100_000_letters_is_a_line_like_any_other(bare):
    s = bare.session([OK, OK])
    assert s.stop('x'*100_000)=='end_turn' and 'x'*100_000 in s.heard() and s.stop()=='end_turn'

def test_C001_a_buffer_of_5_MiB_comes_back_on_one_line(full):
    big = 'a line of text\n'*350_000
    s = full.session([[tool('view_file', path='big.txt', start=300_000, end=300_001)], OK, OK], {'big.txt':'x'}, buffers={'big.txt':big})
    assert s.stop()=='end_turn' and 'a line of text' in s.results()[0] and s.stop()=='end_turn'

def peak(pid):
    "The most memory the process has had, in MiB; what it has now where nobody counts"
    st = Path(f'/proc/{pid}/status')
    kb = re.search(r'VmHWM:\s+(\d+)', st.read_text())[1] if st.exists() else subprocess.run(['ps','-o','rss=','-p',str(pid)], capture_output=True, text=True).stdout
    return int(kb)>>10

@few_or_many(128, 512)
def test_C002_a_line_that_never_ends_does_not_eat_the_memory(n):
    with agent(script=[OK], rc=None) as a:
        a.session().prompt()
        start,said,log = peak(a.proc.pid),len(a.lines),len(a.stderr)
        try:
            for _ in range(n): super(Agent, a).raw(b'a'*(1<<20))
        except OSError: return # it closed the connection, which is fine
        assert peak(a.proc.pid)-start<100
        assert a.stderr[log:].count('\n')<=1 and len(a.lines)==said
        super(Agent, a).raw(b'\n')
        assert a.session().stop()=='end_turn'

@pytest.mark.parametrize('junk,codes', [(b'Welcome back!\n\n{bad json\n', {-32700}), (b'123\n"x"\n[]\nnull\ntrue\n', {-32600})], ids=['C004_no_JSON','C005_no_object'])
def test_C004_C005_junk_between_two_requests_costs_nothing_but_itself(junk, codes):
    with agent(script=[OK], init=False) as a:
        a.raw(hello()+junk)
        assert a.wait(0)['protocolVersion']==1
        assert a.session().stop()=='end_turn'
        bad = a.replies.get(None, [])
        assert {m['error']['code'] for m in bad}<=codes and len(bad)<=len([l for l in junk.splitlines() if l])

STRAY = r"print('hi'); sys.stdout.write('\x1b]0;t\x07'); os.write(1, b'123\n'); warnings.warn('w'); logging.basicConfig(stream=sys.stdout); logging.error('e')"
def test_C007_a_stray_print_lands_in_the_log():
    with agent(cmd=noise(STRAY), script=[OK]) as a:
        s = a.session()
        assert s.stop()=='end_turn' and s.said()=='ok'
        a.until_log('123'); a.until_log('hi')

CHILD = "subprocess.run(['sh', '-c', 'echo 123; echo err >&2; ls -l /proc/self/fd/']); os.system('printf x')"
def test_C008_a_child_does_not_hold_the_protocols_pipes():
    with agent(cmd=noise(CHILD), script=one('run_shell', command='ls -l /proc/self/fd/ /proc/$$/fd/')) as a:
        inos = [f'pipe:[{os.fstat(f.fileno()).st_ino}]' for f in (a.proc.stdin, a.proc.stdout)]
        s = a.session()
        assert s.stop()=='end_turn' and s.said()=='ok'
        a.until_log('123'); a.until_log('err')
        if sys.platform.startswith('linux'): assert 'pipe:[' in a.stderr and not any(i in a.stderr+s.card()['rawOutput']['text'] for i in inos)

def test_C010_stdin_that_closes_while_idle_ends_the_process():
    with agent(script=[OK]) as a:
        a.session().prompt()
        assert a.close()==0 and a.leaves_nothing()

def test_C010_the_same_before_a_single_byte():
    with agent(init=False) as a:
        assert a.close()==0 and a.lines==[]

def test_C011_an_editor_that_leaves_takes_the_running_command_with_it():
    with agent(script=one('run_shell', command="sh -c 'touch $ROOT/up; sleep 90; echo late > $ROOT/late.txt' & sleep 90"), **BARE) as a:
        s = a.session()
        s.start()
        poll(s.path('up').exists)
        assert a.close()==0
        assert a.leaves_nothing() and s.read('late.txt') is None, 'there is nobody left who could write it'

def test_C013_a_reader_that_goes_away_ends_the_turn():
    with agent(script=[[dict(text='a'), dict(sleep=0.1), dict(text='b'), *[e for i in range(20) for e in (dict(sleep=0.1), dict(text=f'{i}'))], dict(sleep=60)]], rc=None) as a:
        s = a.session()
        s.start(); s.until(lambda: 'b' in s.said())
        a.hang_up(stdin=False)
        assert a.proc.wait(SOON) is not None and len(a.stderr)<5000

def test_C014_an_unknown_method_is_refused_and_an_unknown_notification_ignored(bare):
    n = len(bare.lines)
    for m in ('session/steer', '_other.vendor/x', 'foo'):
        with pytest.raises(Remote) as e: bare.request(m, {}, 10)
        assert e.value.code==-32601
    bare.notify('foo/bar'); bare.notify('$/whatever'); bare.notify('_other.vendor/y', dict(a=1))
    assert bare.session([OK]).stop()=='end_turn'
    assert not any(w in l for _,l in bare.lines[n:] for w in (b'foo/bar', b'whatever', b'vendor/y'))

def test_C016_bad_params_name_the_field_and_not_the_secret(tmp_path):
    with agent(script=[OK], env=dict(RAMABANA_LOG=tmp_path/'log')) as a:
        mcp = dict(name='m', command='/bin/true', args=[], env=[dict(name='K', value='sk-ant-SECRET123')])
        bad = [dict(cwd=5, mcpServers=[mcp]), dict(cwd='/tmp', mcpServers='x', _meta=dict(k='sk-ant-SECRET123')), dict(cwd='/tmp', mcpServers=[{**mcp, 'name':7}])]
        for field,p in zip(('cwd','mcpServers','mcpServers'), bad):
            with pytest.raises(Remote) as e: a.request('session/new', p, 10)
            assert e.value.code==-32602 and field in str(e.value)+json.dumps(e.value.data)
        assert a.session().stop()=='end_turn'
        logged = (tmp_path/'log').read_text() if (tmp_path/'log').exists() else ''
        assert 'SECRET123' not in a.stderr+logged+b''.join(l for _,l in a.lines).decode()

def test_C017_meta_overwrites_nothing(bare):
    s = bare.session(one('run_shell', command='pwd'), new=dict(_meta=dict(cwd='/etc', zz=1, self=2)))
    id = bare.send('session/prompt', dict(sessionId=s.sid, prompt=[text('hi')], _meta=dict(session_id='OTHER', sessionId='OTHER', prompt=[], self=3)))
    assert s.wait(id)['stopReason']=='end_turn' and 'hi' in s.heard(0) and str(s.root) in s.results()[0]

def test_C019_a_client_of_another_age_gets_version_1():
    with agent(script=[[tool('view_file', path='a'), tool('run_shell', 't2', command='true')], OK], init=False) as a:
        with pytest.raises(Remote) as e: a.request('session/new', dict(cwd='/tmp', mcpServers=[]))
        assert e.value.code==-32600
        assert a.request('initialize', dict(protocolVersion=99))['protocolVersion']==1
        a.raw(b'{"jsonrpc":"2.0","id":"n","method":"initialize","params":null}\n')
        with pytest.raises(Remote) as e: a.wait('n')
        assert e.value.code==-32602
        assert a.request('initialize', dict(protocolVersion=1, clientCapabilities=None, clientInfo=None, _meta=None))['protocolVersion']==1
        a.ed.caps = {}
        assert a.request('initialize', dict(protocolVersion=1, clientCapabilities=dict(fs=None, terminal=None), future=1))['protocolVersion']==1
        s = a.session(files={'a':'1'})
        assert s.stop()=='end_turn' and {m for m,_ in s.ed.asked}=={'session/request_permission'}

def test_C019_capabilities_of_the_wrong_shape_offer_nothing():
    with agent(script=[[tool('view_file', path='a'), tool('run_shell', 't2', command='true')], OK], init=False) as a:
        for caps in (dict(fs='x'), dict(fs=[]), dict(fs=dict(readTextFile='yes')), dict(terminal='yes'), dict(terminal={}), [], 5):
            a.ed.caps = {}
            try: a.request('initialize', dict(protocolVersion=1, clientCapabilities=caps))
            except Remote as e:
                assert e.code==-32602
                continue
            s = a.session(files={'a':'1'})
            assert s.stop()=='end_turn' and {m for m,_ in s.ed.asked}=={'session/request_permission'}

def test_C020_no_provider_is_the_one_failure_that_asks_to_sign_in():
    with agent() as a:
        with pytest.raises(Remote) as e: a.session()
        assert e.value.code==-32000 and str(e.value)

@pytest.mark.parametrize('status,body,word', [(401, 'invalid x-api-key sk-test-0123456789abcdef', 'key|401|reject|auth'), (429, 'You exceeded your current quota', 'quota')], ids=['401','quota'])
def test_C020_a_provider_that_refuses_is_not_a_sign_in(bare, status, body, word):
    code = dict(code='insufficient_quota', type='insufficient_quota') if status==429 else dict(code='invalid_api_key', type='authentication_error')
    s = bare.session([[dict(http=status, body=json.dumps(dict(error=dict(message=body, **code))))], OK])
    with pytest.raises(Remote) as e: s.prompt()
    assert e.value.code==-32603 and len(s.requests)==1
    assert re.search(word, str(e.value)+json.dumps(e.value.data), re.I) and '0123456789abcdef' not in str(e.value)+json.dumps(e.value.data)
    assert s.stop()=='end_turn'

def test_C020_C037_a_second_prompt_while_one_runs(bare):
    go = threading.Event()
    s = bare.session([[dict(text='A1'), dict(hold=go.is_set), dict(text='A2')], [dict(text='B')], OK])
    i = s.start('first'); s.until(s.said)
    j = s.start('second'); bare.fence(); go.set()
    assert s.wait(i)['stopReason']=='end_turn'
    m = bare.reply(j, 10)
    if 'error' in m:
        assert m['error']['code']!=-32000 and re.search('running|busy', m['error']['message']) and s.said()=='A1A2' and len(s.requests)==1
    else: assert s.said()=='A1A2B' and len(s.requests)==2 and s.heard().index('A1A2')<s.heard().index('second')
    n = len(s.requests)
    assert s.stop('third')=='end_turn' and len(s.requests)==n+1

def test_C022_half_a_surrogate_pair_becomes_a_replacement_mark():
    script = [[dict(text='x\ud800y'), tool('run_shell', command='ls'), tool('find', 't2', pattern='*')], OK]
    with agent(script=script) as a:
        root = a.home/'ws/r1'
        root.mkdir(parents=True)
        (Path(os.fsdecode(os.fsencode(root)+b'/bad\xff.txt'))).write_text('hi')
        s = a.session()
        assert s.stop('list')=='end_turn' and s.said().startswith('x\ufffdy')
        assert any('bad' in t for t in strings(s.card(1)['content']))

def test_C023_NaN_is_told_to_nobody(bare):
    s = bare.session([[dict(tool='view_file', id='a', args='{"path":"a.txt","start":NaN,"end":Infinity}')], OK], {'a.txt':'1\n'})
    assert s.stop()=='end_turn' and len(s.requests)==2 and s.results() # the model is told, and `verify` takes no NaN

# ---- turns

@few_or_many(10, 50)
def test_C025_all_updates_come_before_the_answer(bare, n):
    words = [dict(text=f'{i} ') for i in range(500)]
    s = bare.session([words]*n)
    for k in range(1, n+1):
        assert s.stop()=='end_turn' and len(s.said())==k*len(''.join(e['text'] for e in words))
    n = len(bare.lines)
    bare.fence(); bare.fence()
    assert not [l for _,l in bare.lines[n:] if b'_chunk' in l]

def test_C026_no_chat_text_outside_a_turn(full):
    s = full.session(one('run_shell', command='(until [ -e $ROOT/go ]; do sleep .02; done; echo later; touch $ROOT/said) & echo now'))
    s.prompt()
    n = len(s.ed.updates)
    s.path('go').touch(); poll(s.path('said').exists); full.fence(); full.fence()
    quiet = {'available_commands_update','current_mode_update','config_option_update','session_info_update','usage_update'}
    assert {u['sessionUpdate'] for _,u in s.ed.updates[n:]}<=quiet

def test_C028_a_cancel_in_the_same_write_as_its_prompt_is_not_lost(bare):
    s = bare.session([[dict(sleep=90), dict(text='x')]]*50)
    for i in range(50):
        id = f'p{i}'
        bare.raw(b''.join(json.dumps(dict(jsonrpc='2.0', **m)).encode()+b'\n' for m in (
            dict(id=id, method='session/prompt', params=dict(sessionId=s.sid, prompt=[text('go')])), dict(method='session/cancel', params=dict(sessionId=s.sid)))))
        assert s.wait(id, SOON)['stopReason']=='cancelled'

def test_C029_a_cancel_with_nothing_running_is_not_remembered(bare):
    s = bare.session([[dict(text='one')], [dict(text='two')]])
    s.cancel(); assert s.stop('a')=='end_turn'
    s.cancel(); assert s.stop('b')=='end_turn'
    assert s.said()=='onetwo'

def test_C031_cancelled_is_said_and_counts_no_zeros(bare):
    s = bare.session([[dict(text='part'), dict(sleep=90)]])
    id = s.start(); s.until(s.said); s.cancel()
    r = s.wait(id, SOON)
    assert r['stopReason']=='cancelled' and (not r.get('usage') or any(r['usage'].values()))

def test_C032_finished_is_not_cancelled(bare):
    assert bare.session([[dict(text='hello')]]).stop()=='end_turn'

TREE = "(sleep 90; echo late > $ROOT/late) & (trap '' TERM; touch $ROOT/up; sleep 90; echo late2 > $ROOT/late2) & wait"
@pytest.mark.parametrize('where', ['full','bare'])
def test_C034_cancel_ends_the_whole_tree_of_a_command(request, where):
    a = request.getfixturevalue(where)
    s = a.session(one('run_shell', command=TREE))
    id = s.start()
    poll(s.path('up').exists)
    assert s.stopped(id) and s.card()['status']=='failed'
    if where=='full': a.served(s.sid); assert s.ed.calls('terminal/kill') and not s.ed.unreleased; poll(lambda: not running(s.root))
    else: assert a.leaves_nothing() and not running(s.root), 'there is nobody left who could write'
    assert s.read('late') is None and s.read('late2') is None

def test_C035_nothing_of_a_cancelled_turn_leaks_into_the_next(bare):
    go,n = threading.Event(),len(bare.models.closed)
    s = bare.session([[dict(text='A1'), dict(hold=go.is_set), dict(text='A2-late')], [dict(text='B1')]])
    i = s.start('a'); s.until(s.said)
    s.cancel()
    j = s.start('b')
    assert s.wait(i, SOON)['stopReason']=='cancelled' and s.wait(j)['stopReason']=='end_turn'
    go.set(); bare.models.wait_closed(n+1); bare.fence()
    assert s.said()=='A1B1' and len(bare.replies[i])==len(bare.replies[j])==1
    ids = [next(k for k,(_,l) in enumerate(bare.lines) if json.loads(l).get('id')==x and 'stopReason' in l.decode()) for x in (i,j)]
    between = [json.loads(l) for _,l in bare.lines[ids[0]+1:ids[1]]]
    assert ids[0]<ids[1] and [m['params']['update']['content']['text'] for m in between if m['params']['update']['sessionUpdate']=='agent_message_chunk']==['B1']

def test_C038_two_sessions_do_not_touch_each_other(bare):
    a = bare.session([[dict(sleep=90), dict(text='one')]])
    b = bare.session([[tool('create_file', 'x', path='who.txt', text='b')], [dict(text='two')]], permit='allow_always')
    i = a.start(); j = b.start()
    assert b.wait(j)['stopReason']=='end_turn' and i not in bare.replies
    assert a.stopped(i)
    assert b.said()=='two' and a.said()=='' and b.read('who.txt')=='b' and a.read('who.txt') is None
    c = bare.session(one('create_file', path='who.txt', text='c'), permit='reject_once'); c.prompt()
    assert len(c.asks)==1 and c.read('who.txt') is None

def test_C040_the_same_call_id_again_is_another_card(bare):
    s = bare.session([[tool('view_file', 'call_0', path='a'), tool('view_file', 'call_0', path='b')], [tool('view_file', 'call_0', path='c')], OK], {k:f'text of {k}' for k in 'abc'})
    assert s.stop()=='end_turn' and len(s.cards)==3 and all(c['status']=='completed' for c in s.cards.values())
    calls = [c for m in s.requests[-1]['messages'] for c in m.get('tool_calls') or []]
    got = {m['tool_call_id']:m['content'] for m in s.requests[-1]['messages'] if m['role']=='tool'}
    assert len({c['id'] for c in calls})==3
    for c in calls: assert f'text of {json.loads(c["function"]["arguments"])["path"]}' in got[c['id']]

def test_C041_a_failed_turn_is_an_error_and_not_an_invented_reason(bare):
    s = bare.session([[dict(http=403, body='{"error":{"message":"insufficient balance for key sk-abc123456789"}}')], OK])
    with pytest.raises(Remote) as e: s.prompt('q')
    said = str(e.value)+json.dumps(e.value.data)
    assert e.value.code==-32603 and 'insufficient balance' in said and 'sk-abc123456789' not in said and len(said)<=2048
    assert e.value.data['code']=='turn_failed'
    assert s.stop('again')=='end_turn'

def test_C043_a_path_is_no_slash_command(bare):
    s = bare.session([[dict(text='looked')], OK])
    names = [c['name'] for c in s.until(lambda: s.ed.of('available_commands_update'))[-1]['availableCommands']]
    assert s.stop('/etc/hosts looks wrong')=='end_turn' and '/etc/hosts looks wrong' in s.heard() and s.said()=='looked'
    n,was = len(s.requests),s.said()
    assert 'nosuchcommand' not in names and s.stop('/nosuchcommand please')=='end_turn'
    assert s.said()!=was or len(s.requests)>n
    n,was = len(s.requests),s.said()
    assert s.stop(' /help')=='end_turn' and len(s.requests)==n and '/help' in s.said()[len(was):]

def test_C044_the_live_prompt_is_not_echoed(bare):
    s = bare.session([OK]); s.prompt('hello')
    assert not s.ed.of('user_message_chunk')

def test_C046_a_path_of_another_system_is_no_path_here(bare):
    s = bare.session(one('create_file', path='C:\\Users\\me\\x.txt', text='y'))
    links = [dict(type='resource_link', name=n, uri=u) for n,u in (('f','file:///C:/Users/me/a%20b.py'), ('g','file://server/share/x'))]
    assert s.stop([*links, text('go')])=='end_turn'
    assert s.card()['status']=='failed' and s.results()[0].startswith('ERROR: ') and list(s.root.rglob('*'))==[]
    assert 'a%20b.py' in s.heard(0) and 'server/share/x' in s.heard(0) and '@/share/x' not in s.heard(0)

def test_C047_an_attachment_that_cannot_be_used_is_told(bare):
    s = bare.session([OK])
    with pytest.raises(Remote) as e: s.prompt([text('see'), dict(type='image', mimeType='image/png', data='@@not-base64@@')])
    assert e.value.code==-32602 and not s.requests
    try: assert s.stop([])=='end_turn'
    except Remote as e: assert e.code==-32602
    assert not s.requests and s.stop('now')=='end_turn'

DEAF = '[models.deaf]\nprovider = "openai"\nid = "fake-model"\naccepts = ["text"]\n'
def test_C047_a_kind_the_model_does_not_take_is_named_in_the_text(models, tmp_path):
    (tmp_path/'config.toml').write_text(DEAF)
    env = dict(OPENAI_BASE_URL=f'{models.base}/v1', OPENAI_API_KEY='sk-test-0123456789abcdef')
    with agent('--cfg', tmp_path, '--model', 'deaf', env=env) as a:
        a.models = models
        s = a.session([OK])
        assert s.stop([dict(type='audio', mimeType='audio/wav', data='UklGRg=='), text('hear')])=='end_turn'
        assert 'audio' in s.heard() and 'audio/wav' in s.heard() and 'UklGRg==' not in json.dumps(s.requests[0]['messages'])
        assert a.info['agentCapabilities']['promptCapabilities']['audio'] is False

# ---- the editor

@pytest.mark.parametrize('bounds', [True, False], ids=['honoured','ignored'])
def test_C049_lines_are_counted_from_1_whatever_the_editor_does(full, bounds):
    s = full.session([[tool('view_file', 'a', path='a.txt', start=2, end=3), tool('view_file', 'b', path='a.txt', start=99), tool('view_file', 'c', path='a.txt', start=0, end=-1)], OK],
        {'a.txt':'l1\nl2\nl3\nl4\n'}, bounds=bounds)
    s.prompt()
    a,b,c = s.results()
    assert re.search(r'\b2\b.*l2', a) and re.search(r'\b3\b.*l3', a) and 'l1' not in a and 'l4' not in a
    assert '4' in b and not re.search('l[1-4]', b)
    assert c.startswith('ERROR: ') and not re.search('l[1-4]', c)

def test_C050_a_new_file_is_written_though_the_editor_cannot_read_it(full):
    s = full.session(one('create_file', path='sub/new.py', text='x\n'), answers={'fs/read_text_file':InternalError('invalid path')})
    s.prompt()
    w, = s.ed.calls('fs/write_text_file')
    assert w['content']=='x\n' and s.card()['status']=='completed'
    for c in (s.asks[0]['toolCall'], s.card()):
        d = next(o for o in c['content'] if o['type']=='diff')
        assert d.get('oldText') is None and d['newText']=='x\n'

def test_C052_a_read_answer_without_content_is_a_failed_read(full):
    s = full.session(one('edit_file', path='a.txt', old='disk', new='x'), {'a.txt':'disk\n'}, answers={'fs/read_text_file':dict(error='file too large')})
    s.prompt()
    assert not re.search('KeyError|TypeError|NoneType|Traceback', s.heard())
    ws = s.ed.calls('fs/write_text_file')
    if s.card()['status']=='completed': assert [w['content'] for w in ws]==['x\n']
    else: assert not ws and s.results()[0].startswith('ERROR: ')

def test_C053_a_write_the_editor_refuses_is_not_made_behind_its_back(full):
    s = full.session(one('edit_file', path='a.txt', old='old', new='new'), {'a.txt':'old\n'},
        answers={'fs/read_text_file':only('a.txt', dict(content='old\n')), 'fs/write_text_file':InternalError('buffer is read-only')})
    s.prompt()
    assert s.read('a.txt')=='old\n' and 'buffer is read-only' in s.results()[0] and s.card()['status']=='failed'

def test_C055_a_formatter_between_two_edits_is_seen(full):
    s = full.session([[tool('edit_file', 'a', path='a.py', old='x=0', new='x=1')], [tool('edit_file', 'b', path='a.py', old='x= 1 ', new='x = 2')], OK],
        {'a.py':'x=0\n'}, on_write=lambda path, t: t.replace('1', ' 1 '))
    s.prompt()
    assert s.read('a.py')=='x = 2\n' and [c['status'] for c in s.cards.values()]==['completed']*2
    assert re.search('differ|format|changed', s.results(1)[0]) or 'x= 1 ' in s.results(1)[0]

def test_C056_a_latin_1_file_is_not_destroyed_by_a_channel_of_text(full):
    s = full.session(one('edit_file', path='l.txt', old='= 1', new='= 2'), {'l.txt':b'caf\xe9 = 1\n'})
    s.prompt()
    assert (s.root/'l.txt').read_bytes() in (b'caf\xe9 = 2\n', b'caf\xe9 = 1\n')
    assert not any('\ufffd' in w['content'] for w in s.ed.calls('fs/write_text_file'))
    if (s.root/'l.txt').read_bytes()==b'caf\xe9 = 1\n': assert s.card()['status']=='failed' and s.results()[0].startswith('ERROR: ')

DEAD = dict(exitCode=None, signal='SIGKILL')
def test_C058_a_command_that_a_signal_ended_has_failed(full, bare):
    s = full.session(one('run_shell', command='x'), answers={'terminal/wait_for_exit':DEAD, 'terminal/output':dict(output='', truncated=False, exitStatus=DEAD)})
    s.prompt()
    assert 'SIGKILL' in s.results()[0] and s.card()['status']=='failed'
    s = bare.session(one('run_shell', command='kill -9 $$'))
    s.prompt()
    assert 'SIGKILL' in s.results()[0] and s.card()['status']=='failed'

def test_C059_a_terminal_that_never_ends_costs_its_timeout_and_no_more(full):
    s = full.session(one('run_shell', command='echo begun; sleep 999', timeout=1), answers={'terminal/wait_for_exit':NoAnswer, 'terminal/kill':NoAnswer})
    t = time.monotonic()
    assert s.stop()=='end_turn' and .9<time.monotonic()-t<SOON
    assert re.search('timed? ?out', s.results()[0]) and 'begun' in s.results()[0] and s.said()=='ok' and s.card()['status']=='failed'
    said = [json.loads(l) for _,l in full.lines]
    order = [m['method'] for m in said if m.get('method') in ('terminal/kill','terminal/release') and m['params']['sessionId']==s.sid]
    assert order==['terminal/kill','terminal/release']

@pytest.mark.parametrize('where', ['full','bare'])
def test_C059_a_timeout_ends_the_command(request, where):
    s = request.getfixturevalue(where).session(one('run_shell', command='echo begun; (sleep 90; touch $ROOT/late) & sleep 999', timeout=1))
    assert s.stop()=='end_turn' and re.search('timed? ?out', s.results()[0]) and 'begun' in s.results()[0]
    poll(lambda: not running(s.root))
    assert s.read('late') is None

SHELL = """cd sub && printf '%s\\n' "a b" 'c"d' | tr a A; echo $HOME"""
def test_C061_the_whole_command_goes_through_a_shell(full):
    s = full.session(one('run_shell', command=SHELL), {'sub/x':''})
    s.prompt()
    c, = s.ed.calls('terminal/create')
    assert c['cwd']==str(s.root) and c['args']==['-c', SHELL] or SHELL in c['args'][-1]
    for l in subprocess.run(['sh', '-c', SHELL], cwd=s.root, capture_output=True, text=True).stdout.splitlines(): assert l in s.results()[0]

def test_C062_what_was_not_offered_is_not_used():
    with agent(script=[[tool('edit_file', 'a', path='a.txt', old='old', new='new'), tool('run_shell', 'b', command='echo hi')], OK], fs='read', terminal=False) as a:
        s = a.session(files={'a.txt':'old\n'})
        s.prompt()
        assert {m for m,_ in s.ed.asked}=={'fs/read_text_file','session/request_permission'} and s.read('a.txt')=='new\n' and 'hi' in s.shown(1)

def diff(o): return next((c for c in o.get('content') or [] if c['type']=='diff'), None)

def test_C064_a_new_an_overwritten_and_an_edited_file(bare):
    s = bare.session([[tool('view_file', 'v', path='b.txt')], [tool('create_file', 'a', path='new.txt', text='n\n'), tool('create_file', 'b', path='b.txt', text='1\n3\n'),
        tool('edit_file', 'c', path='b.txt', old='3', new='4')], OK], {'b.txt':'1\n2\n'})
    s.prompt()
    _,*cards = s.cards.values()
    got = [(d['path'], d.get('oldText'), d['newText']) for d in map(diff, cards)]
    assert got==[(str(s.path('new.txt')), None, 'n\n'), (str(s.path('b.txt')), '1\n2\n', '1\n3\n'), (str(s.path('b.txt')), '1\n3\n', '1\n4\n')]
    assert all(c['locations'][0]['path'] for c in cards) and cards[2]['locations'][0]['line']==2
    assert s.read('b.txt')=='1\n4\n'

def test_C065_a_card_that_is_done_still_shows_the_change(bare):
    s = bare.session([[tool('edit_file', 'a', path='b.txt', old='1', new='2')], [tool('edit_file', 'b', path='b.txt', old='1', new='2')], OK], {'b.txt':'1\n'})
    s.prompt()
    good,bad = s.cards.values()
    assert good['status']=='completed' and diff(good)['newText']=='2\n'
    told = [c['content']['text'] for c in bad['content'] if c['type']=='content']
    assert bad['status']=='failed' and told and 'b.txt' in told[0], told

# ---- permission

def create(): return one('create_file', path='$ROOT/x.txt', text='hi')

@pytest.mark.parametrize('id', ['allow', 'ALLOW_ONCE', '', 'yes', 'allow_once '])
def test_C067_an_id_that_was_not_offered_grants_nothing(bare, id):
    def never(p):
        ids = [o['optionId'] for o in p['options']]
        return dict(outcome=dict(outcome='selected', optionId=id if id not in ids else id+'_'))
    s = bare.session(create(), permit=never)
    assert s.stop() in ('end_turn','cancelled') and s.read('x.txt') is None and s.card()['status']=='failed'

ODD = dict(null=None, empty={}, no_outcome=dict(outcome={}), no_option=dict(outcome=dict(outcome='selected')), text=dict(outcome='allow'), true=dict(outcome=True), list_=['allow'],
    number=dict(outcome=dict(outcome='selected', optionId=7)), invented=dict(outcome=dict(outcome='allowed', optionId='allow_once')), internal=Remote(-32603, 'no'), unknown=Remote(-32601, 'no'))
@pytest.mark.parametrize('odd', ODD)
def test_C068_a_malformed_answer_grants_nothing(bare, odd):
    s = bare.session([*create(), OK], permit=ODD[odd])
    if odd=='null': s.ed.answers['session/request_permission'] = lambda p: None
    assert s.stop() in ('end_turn','cancelled') and s.read('x.txt') is None and s.card()['status']=='failed'
    assert s.stop()=='end_turn'

@pytest.mark.parametrize('kind', ['selected', 'allowed', 'Selected'])
def test_C068_an_allowed_id_under_another_outcome_grants_nothing(bare, kind):
    s = bare.session(create(), permit=lambda p: dict(outcome=dict(outcome=kind, optionId=option('allow_once')(p))))
    s.prompt()
    assert (s.read('x.txt')=='hi')==(kind=='selected')

def test_C070_allowing_every_edit_does_not_allow_the_shell(bare):
    s = bare.session([[tool('edit_file', 'a', path='f', old='1', new='2')], [tool('create_file', 'b', path='g', text='')], [tool('run_shell', 'c', command='touch h')],
        [tool('add_root', 'd', path='/tmp')], OK], {'f':'1'}, permit=['allow_always','reject_once'])
    s.prompt()
    assert [p['toolCall']['name'] for p in s.asks]==['edit_file','run_shell','add_root'] and s.read('g')=='' and s.read('h') is None
    assert 'session' in next(o['name'] for o in s.asks[0]['options'] if o['kind']=='allow_always')

def test_C071_always_is_bound_to_its_session(bare):
    edits = [[tool('create_file', 'a', path='a', text='')], [tool('create_file', 'b', path='b', text='')], OK]
    a,b = bare.session(edits, permit='allow_always'),bare.session(edits, permit='reject_once')
    a.prompt(); b.prompt()
    assert len(a.asks)==1 and a.read('b')=='' and len(b.asks)==2 and b.read('a') is None

def test_C073_a_cancelled_card_is_a_no_and_not_a_stop_of_everything(bare):
    s = bare.session([*create(), OK], permit='cancelled')
    assert s.stop() in ('end_turn','cancelled') and s.read('x.txt') is None
    assert s.stop('next')=='end_turn' and s.results() # and the model's server refuses a call without a result

def test_C074_answers_find_their_own_question(bare):
    held = threading.Event()
    def pick(p):
        if str(p['toolCall']['rawInput']['path']).endswith('b'): held.set(); return 'reject_once'
        held.wait(.1) # if both are open, b is answered first
        return 'allow_once'
    s = bare.session([[tool('create_file', 'a', path='$ROOT/a', text='A'), tool('create_file', 'b', path='$ROOT/b', text='B')], OK], permit=pick)
    s.prompt()
    assert s.read('a')=='A' and s.read('b') is None and len({p['toolCall']['toolCallId'] for p in s.asks})==2

def test_C076_a_command_is_asked_about_with_default_options(bare):
    s = bare.session(one('run_shell', command='touch $ROOT/y'), permit='reject_once')
    s.prompt()
    assert len(s.asks)==1 and s.read('y') is None

# ---- cancel, whatever is stuck

@pytest.mark.parametrize('polite', [True, False], ids=['withdrawn','unanswered'])
def test_cancel_while_a_permission_is_open(bare, polite):
    s = bare.session([*create(), OK], permit=None)
    bare.polite = polite
    try:
        id = s.start(); s.until(lambda: s.asks)
        assert s.stopped(id) and s.card()['status']=='failed' and s.read('x.txt') is None
    finally: bare.polite = True
    assert s.stop()=='end_turn'

def test_cancel_while_the_editor_never_answers_a_read(full):
    s = full.session([[tool('view_file', path='a.txt')], OK], {'a.txt':'1'}, answers={'fs/read_text_file':only('a.txt', NoAnswer)})
    id = s.start(); s.until(lambda: any(p['path'].endswith('a.txt') for p in s.ed.calls('fs/read_text_file')))
    assert s.stopped(id) and s.card()['status']=='failed'
    assert s.stop()=='end_turn'

STUCK = {'silent server':([dict(silence=90)], lambda s: s.requests), 'mid-stream':([dict(text='x'), dict(sleep=90)], lambda s: s.said()),
    'retry':([dict(http=503, headers={'retry-after':'25'})], lambda s: 'Asking again' in s.said('agent_thought_chunk'))}
@pytest.mark.parametrize('how', STUCK)
def test_cancel_while_the_model_is_stuck(bare, how):
    script,there = STUCK[how]
    s = bare.session([script, OK])
    id = s.start(); poll(lambda: there(s))
    assert s.stopped(id)
    assert s.stop()=='end_turn'

def test_cancel_request_withdraws_a_prompt(bare):
    s = bare.session([[dict(text='x'), dict(sleep=90)], OK])
    id = s.start(); s.until(s.said)
    bare.notify('$/cancel_request', dict(requestId=id)); bare.notify('$/cancel_request', dict(requestId='nobody'))
    m = bare.reply(id, SOON)
    assert m.get('error', {}).get('code')==-32800 or m['result']['stopReason']=='cancelled'
    assert s.stop()=='end_turn'

@pytest.mark.parametrize('sig', [signal.SIGTERM, signal.SIGINT], ids=['SIGTERM','SIGINT'])
def test_a_signal_ends_the_turn_and_the_process(sig):
    with agent(script=one('run_shell', command='sleep 60 & sleep 60'), rc=None, **BARE) as a:
        s = a.session()
        id = s.start(); s.until(lambda: s.cards and s.card().get('status')=='in_progress')
        a.proc.send_signal(sig)
        assert a.leaves()==0 and a.leaves_nothing()
        assert len(a.replies.get(id, []))==1
