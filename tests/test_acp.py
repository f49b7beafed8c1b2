"The wire, as an editor sees it: each statement of what the agent does, by its number"
import inspect
from wire import *

# ---- the command

def test_R1_the_command_exists_and_speaks_json_rpc_on_its_pipes():
    with agent(cmd=[Path(sys.executable).parent/'ramabana-acp'], script=[OK], init=False) as a:
        r = a.initialize()
        assert r['protocolVersion']==1 and len(a.lines)==1 and a.lines[0][1].startswith(b'{')
        assert a.session().stop()=='end_turn'

def test_R2_what_a_tool_prints_never_reaches_the_protocol(bare):
    s = bare.session(one('run_shell', command='echo 123; printf x >&2; printf "{\\"jsonrpc\\":\\"2.0\\"}"'))
    assert s.stop()=='end_turn'
    assert '123' in s.results()[0]
    assert all(l.startswith(b'{"') for _,l in bare.lines) # and `verify` has parsed each

@pytest.mark.parametrize('caps', [FULL, BARE], ids=['terminal','local'])
def test_R3_closing_stdin_cancels_the_turn_and_ends_with_0(caps):
    with agent(script=one('run_shell', command='sleep 60 & touch $ROOT/up; sleep 60'), strict=False, **caps) as a: # an editor that left cannot be told that its terminal is free
        s = a.session()
        s.start()
        poll(s.path('up').exists)
        assert a.close()==0 and a.leaves_nothing()

def test_R4_the_options_and_their_defaults():
    r = subprocess.run([*PYTHON, '--help'], capture_output=True, text=True, timeout=60)
    assert r.returncode==0
    for o in ('--root','--model','--no-web','--vault','--pii','--pii-ner','--cfg'): assert re.search(rf'(?<![\w-]){o}\b', r.stdout), o
    assert subprocess.run([*PYTHON, '--nonsense'], capture_output=True, timeout=60, stdin=subprocess.DEVNULL).returncode==2

@pytest.mark.parametrize('opt', [['--vault'], ['--pii','redact'], ['--pii','bogus']], ids=' '.join)
def test_R4_an_option_that_is_not_there_yet_says_so_and_exits_2(opt):
    r = subprocess.run([*PYTHON, *opt], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert r.returncode==2 and r.stdout=='' and opt[0].strip('-') in r.stderr and 'Traceback' not in r.stderr

def test_R5_main_takes_the_options_in_the_pages_order():
    from ramabana_acp import main
    ps = inspect.signature(main).parameters
    want = dict(root='.', model=None, web=True, vault=False, pii='off', pii_ner=False, cfg=None)
    assert {k:p.default for k,p in list(ps.items())[:7]}==want and list(ps)[:7]==list(want)

def test_R6_root_is_used_only_when_the_client_names_no_folder(tmp_path):
    for k in ('A','B'): (tmp_path/k).mkdir(); (tmp_path/k/'who.txt').write_text(f'this is {k}')
    with agent('--root', tmp_path/'A', script=one('view_file', path='who.txt')) as a:
        s = a.session(root=tmp_path/'B')
        s.prompt()
        assert 'this is B' in s.shown()
        sid = a.request('session/new', dict(mcpServers=[]))['sessionId']
        a.prompt(sid, 'go', 20)
        assert 'this is A' in '\n'.join(strings(a.part(sid).cards()))

def test_R7_serve_is_a_coroutine_that_needs_no_agent():
    from ramabana_acp import serve
    assert inspect.iscoroutinefunction(serve) and inspect.signature(serve).parameters['agent'].default is None

@pytest.fixture(scope='module')
def routed(models):
    "An agent that was told of no model, and to leave the web alone"
    with agent('--no-web', env=dict(OPENAI_BASE_URL=f'{models.base}/v1', OPENAI_API_KEY='sk-test-0123456789abcdef')) as a:
        a.models = models
        yield a

def test_R8_no_web_leaves_the_web_tools_out(routed, full):
    def names(a):
        s = a.session([OK]); s.prompt()
        return {t['function']['name'] for t in s.requests[0]['tools']}
    assert names(routed)==names(full)-{'web_search','read_url'} and 'view_file' in names(full)

def test_R9_the_model_option_selects_the_model_of_every_session(full):
    for s in (full.session([OK]), full.session([OK])):
        s.prompt()
        assert s.requests[0]['model']=='fake-model'

def test_R9_without_it_the_routing_default_is_used(routed):
    s = routed.session([OK])
    assert s.stop()=='end_turn' and s.requests[0]['model']

# ---- initialize and sessions

def test_R11_any_version_is_answered_with_1_and_a_name():
    with agent('--model', 'demo', init=False) as a:
        for v in (0, 1, 2, 99, 65535):
            r = a.initialize(protocolVersion=v)
            assert r['protocolVersion']==1
            assert r['agentInfo']['name']=='ramabana-acp' and r['agentInfo']['title'] and re.match(r'\d+\.\d+', r['agentInfo']['version'])

def test_R11_what_is_no_version_is_refused_and_the_next_try_works():
    with agent('--model', 'demo', init=False) as a:
        for v in (65536, -1, '2025-01-01', None, 1.5, True):
            with pytest.raises(Remote) as e: a.initialize(protocolVersion=v)
            assert e.value.code==-32602, v
        assert a.initialize()['protocolVersion']==1

def test_R12_what_is_advertised_is_true(full):
    c = full.info['agentCapabilities']
    assert c['promptCapabilities']['image'] is True and c['promptCapabilities']['embeddedContext'] is True
    if not c.get('loadSession'):
        with pytest.raises(Remote) as e: full.request('session/load', dict(sessionId='x', cwd='/tmp', mcpServers=[]))
        assert e.value.code==-32601
    for k in ('list','resume','close','delete'):
        if (c.get('sessionCapabilities') or {}).get(k) is not None: continue
        with pytest.raises(Remote) as e: full.request(f'session/{k}', dict(sessionId='x', cwd='/tmp'))
        assert e.value.code==-32601, k

ALL = [[tool('view_file', 'a', path='a.txt')], [tool('edit_file', 'b', path='a.txt', old='1', new='2')], [tool('run_shell', 'c', command='echo hi')], OK]
@pytest.mark.parametrize('caps', [dict(fs='read', terminal=False), dict(fs='write', terminal=False), dict(fs=False, terminal=True)], ids=['read','write','terminal'])
def test_R13_only_what_the_client_offers_is_used(caps):
    with agent(script=ALL, **caps) as a:
        s = a.session(files={'a.txt':'1\n'})
        assert s.stop()=='end_turn' and s.read('a.txt')=='2\n' and s.card(2)['status']=='completed'
        used = {m for m,_ in s.ed.asked}-{'session/request_permission'}
        assert bool(used & {'fs/read_text_file'})==(caps['fs']=='read')
        assert bool(used & {'fs/write_text_file'})==(caps['fs']=='write')
        assert ('terminal/create' in used)==caps['terminal']

def test_R14_a_client_that_offers_nothing_is_asked_for_nothing(bare):
    s = bare.session(ALL, {'a.txt':'1\n'})
    assert s.stop()=='end_turn' and s.read('a.txt')=='2\n' and 'hi' in s.results()[-1]
    assert {m for m,_ in s.ed.asked}=={'session/request_permission'}

def test_R15_each_session_is_one_of_its_own(bare):
    a,b = bare.session([OK]),bare.session([OK])
    assert a.sid!=b.sid and a.stop()==b.stop()=='end_turn' and bare.proc.poll() is None

def test_R16_two_sessions_share_no_history_no_grant_and_no_root(bare):
    edit = one('create_file', path='x.txt', text='x')
    a = bare.session([*edit, *one('view_file', path='mine.txt')], permit='allow_always')
    b = bare.session([*edit, *one('view_file', path=str(a.root/'mine.txt'))], {'n.txt':''}, permit='reject_once')
    (a.root/'mine.txt').write_text('only in a')
    a.prompt('the word is xylophone'); b.prompt('hello')
    assert 'xylophone' not in b.heard()
    assert len(a.asks)==1 and len(b.asks)==1 and b.read('x.txt') is None
    a.prompt(); b.prompt()
    assert 'only in a' in a.results()[-1] and 'only in a' not in b.heard()

def test_R18_the_commands_are_told_after_the_session_is(full):
    s = full.session()
    cmds = s.until(lambda: s.ed.of('available_commands_update'))[-1]['availableCommands']
    assert 'help' in [c['name'] for c in cmds] and all(c['description'] and not c['name'].startswith('/') for c in cmds)

def test_R24_a_closed_session_is_gone(bare):
    s = bare.session([OK]); s.prompt()
    assert s.close()=={}
    for meth,p in (('session/prompt', dict(prompt=[dict(type='text', text='hi')])), ('session/close', {})):
        with pytest.raises(Remote) as e: bare.request(meth, dict(sessionId=s.sid, **p))
        assert (e.value.code, e.value.data['sessionId'])==(-32002, s.sid)

def test_R24_closing_a_session_ends_its_turn(bare):
    s = bare.session(one('run_shell', command='sleep 60'))
    id = s.start()
    s.until(lambda: s.cards and s.card().get('status')=='in_progress')
    assert s.close()=={}
    assert s.wait(id, SOON)['stopReason']=='cancelled' and s.card()['status']=='failed'

def test_R25_an_unknown_session_is_named_in_the_error(bare):
    with pytest.raises(Remote) as e: bare.prompt('nobody', 'hi', 10)
    assert (e.value.code, e.value.data['sessionId'])==(-32002, 'nobody')
    n = len(bare.lines)
    bare.cancel('nobody')
    assert bare.session([OK]).stop()=='end_turn'
    assert not any(b'nobody' in l for _,l in bare.lines[n:])

# ---- a turn

def test_R26_other_requests_are_answered_while_a_turn_runs(bare):
    go = threading.Event()
    s = bare.session([[dict(text='a'), dict(hold=go.is_set), dict(text='b')]])
    id = s.start(); s.until(s.said)
    other = bare.session([OK])
    assert other.stop()=='end_turn' and id not in bare.replies
    go.set()
    assert s.wait(id)['stopReason']=='end_turn' and s.said()=='ab'

def test_R27_every_chunk_arrives_in_order_before_the_answer(bare):
    words = [f'w{i} ' for i in range(300)]
    s = bare.session([[dict(text=w) for w in words]])
    s.prompt()
    assert s.said()==''.join(words)
    assert len({u['messageId'] for u in s.ed.of('agent_message_chunk')})==1

def test_R28_the_answer_says_how_the_turn_ended(bare):
    s = bare.session([OK, [dict(text='x'), dict(sleep=90)]])
    assert s.stop()=='end_turn'
    id = s.start(); s.until(lambda: 'x' in s.said())
    assert s.stopped(id)

@pytest.mark.parametrize('stop,reason', [('length','max_tokens'), ('refusal','refusal')])
def test_R28_a_model_that_stops_for_another_reason_is_not_end_turn(bare, stop, reason):
    s = bare.session([[dict(text='half a'), dict(stop=stop)]]*20)
    assert s.stop()==reason

def test_R29_a_slash_command_is_no_turn(bare):
    s = bare.session([OK])
    assert s.stop('/help')=='end_turn' and '/help' in s.said() and not s.requests
    assert len({u.get('messageId') for u in s.ed.of('agent_message_chunk')})==1

def test_R30_an_unknown_command_is_told(bare):
    s = bare.session([OK])
    assert s.stop('/nosuchcommand')=='end_turn'
    assert 'nosuchcommand' in s.said() or s.requests

def test_R31_an_empty_prompt_ends_without_a_turn(bare):
    s = bare.session([OK])
    assert s.stop([])=='end_turn' and not s.requests and not s.said()

def test_R32_a_new_prompt_begins_with_new_cards(bare):
    s = bare.session(one('run_shell', command='echo 1')*2)
    s.prompt(); s.prompt()
    (i,a),(j,b) = s.cards.items()
    assert i!=j and a['status']==b['status']=='completed'
    assert [p['toolCall']['toolCallId'] for p in s.asks]==[i,j]

def test_R33_cancel_stops_that_session_alone(bare):
    go = threading.Event()
    a,b = [bare.session([[dict(text='go '), dict(hold=go.is_set), dict(text='on')]]) for _ in 'ab']
    i,j = a.start(),b.start()
    a.until(a.said); b.until(b.said)
    assert a.stopped(i) and j not in bare.replies
    go.set()
    assert b.wait(j)['stopReason']=='end_turn' and b.said()=='go on' and a.said()=='go '

def test_R34_a_cancelled_session_takes_the_next_prompt(bare):
    s = bare.session([[dict(text='x'), dict(sleep=90)], [dict(text='y')]])
    id = s.start('first'); s.until(s.said)
    assert s.stopped(id)
    assert s.stop('second')=='end_turn' and s.said()=='xy' and 'second' in s.heard()

# ---- what a prompt may hold

def test_R35_to_R38_blocks_become_text(bare):
    s = bare.session([OK])
    s.prompt([dict(type='text', text='look'), dict(type='resource', resource=dict(uri='file:///a.py', text='x = 1', mimeType='text/x-python')),
        dict(type='resource', resource=dict(uri='file:///b.bin', blob='AAAA', mimeType='application/x-foo')), dict(type='resource_link', uri='file:///c.py', name='c')])
    heard = s.heard()
    assert 'look' in heard and 'file:///a.py' in heard and 'x = 1' in heard and '@file:///c.py' in heard
    assert 'file:///b.bin' in heard and 'application/x-foo' in heard and 'AAAA' not in heard

def test_R39_an_image_reaches_the_model(bare):
    png = 'iVBORw0KGgo='
    s = bare.session([OK])
    assert s.stop([dict(type='text', text='what is this'), dict(type='image', data=png, mimeType='image/png')])=='end_turn'
    assert png in json.dumps(s.requests[0]['messages'])

# ---- the editor's files and terminals

def test_R51_the_unsaved_buffer_is_what_is_read(full):
    s = full.session(one('view_file', path='a.txt'), {'a.txt':'on disk\n'}, buffers={'a.txt':'in the buffer\n'})
    s.prompt()
    assert 'in the buffer' in s.results()[0] and 'on disk' not in s.heard()

def only(name, *script_):
    "Script the reads of one file and leave the others alone"
    xs = list(script_)
    def f(p): return (xs.pop(0) if len(xs)>1 else xs[0]) if p['path'].endswith(name) else ...
    return f

def test_R52_a_read_the_editor_declines_falls_back_to_the_disk(full):
    s = full.session(one('view_file', path='a.txt'), {'a.txt':'on disk\n'}, answers={'fs/read_text_file':only('a.txt', InternalError('no'))})
    s.prompt()
    assert 'on disk' in s.results()[0] and s.card()['status']=='completed'

@pytest.mark.parametrize('path', ['../out.txt', '/etc/passwd', 'link/out.txt'])
def test_R53_a_path_outside_the_roots_is_refused_without_asking_the_client(full, path):
    out = full.home/'ws/out.txt'
    out.parent.mkdir(parents=True, exist_ok=True); out.write_text('outside')
    s = full.session(one('view_file', path=path))
    (s.root/'link').symlink_to('..')
    s.prompt()
    assert s.results()[0].startswith('ERROR: ') and 'outside' not in s.results()[0].replace('outside the', '') and s.card()['status']=='failed'
    assert not [p for p in s.ed.calls('fs/read_text_file') if 'out.txt' in p['path'] or 'passwd' in p['path']]

def test_R55_a_write_goes_through_the_editor_and_the_disk_is_left_to_it(full):
    s = full.session(one('create_file', path='new/a.txt', text='hello\n'), saves=False)
    s.prompt()
    w, = s.ed.calls('fs/write_text_file')
    assert w['path']==str(s.path('new/a.txt')) and w['content']=='hello\n' and s.ed.text('new/a.txt')=='hello\n'
    assert not s.path('new/a.txt').exists() and s.card()['status']=='completed'

def test_R56_a_write_the_editor_refuses_is_a_failure(full):
    s = full.session(one('edit_file', path='a.txt', old='1', new='2'), {'a.txt':'1\n'}, answers={'fs/write_text_file':InternalError('buffer is read-only')})
    s.prompt()
    assert s.read('a.txt')=='1\n' and s.results()[0].startswith('ERROR: ') and 'buffer is read-only' in s.results()[0] and s.card()['status']=='failed'

def test_R57_an_edit_matches_the_text_of_the_buffer(full):
    s = full.session([[tool('edit_file', 'a', path='a.txt', old='buffer', new='BUFFER'), tool('edit_file', 'b', path='a.txt', old='disk', new='x')], OK],
        {'a.txt':'disk\n'}, buffers={'a.txt':'buffer\n'})
    s.prompt()
    assert s.ed.text('a.txt')=='BUFFER\n' and s.results()[1].startswith('ERROR: ')

def test_R58_a_command_runs_in_the_editors_terminal(full):
    s = full.session(one('run_shell', command='pwd; echo "a  b" | tr a A; exit 3'))
    s.prompt(); full.served(s.sid)
    c, = s.ed.calls('terminal/create')
    assert c['args'][0]=='-c' and c['command'].endswith('sh') and c['cwd']==str(s.root)
    assert str(s.root) in s.results()[0] and 'A  b' in s.results()[0] and '3' in s.results()[0]
    assert len(s.ed.calls('terminal/release'))==1 and not s.ed.unreleased

def test_R59_a_terminal_that_cannot_be_opened_means_one_local_run(full):
    s = full.session(one('run_shell', command='echo x >> ran; echo done'), answers={'terminal/create':InternalError('no terminals left')})
    s.prompt()
    assert s.read('ran')=='x\n' and 'done' in s.results()[0] and s.card()['status']=='completed'

@pytest.mark.parametrize('meth', ['terminal/wait_for_exit','terminal/output'])
def test_R60_after_the_terminal_opened_nothing_runs_twice(full, meth):
    def no(p): poll(s.path('ran').exists); raise InternalError('the terminal is broken')
    s = full.session(one('run_shell', command='echo x >> ran'), answers={meth:no})
    s.prompt()
    assert s.read('ran')=='x\n' and 'the terminal is broken' in s.results()[0] and s.card()['status']=='failed'

def test_R61_no_terminal_is_opened_to_see_whether_one_can_be(full):
    s = full.session([OK]); s.prompt()
    assert not s.ed.calls('terminal/create') and 'run_shell' in {t['function']['name'] for t in s.requests[0]['tools']}

def test_R62_output_that_the_editor_cut_is_marked(full):
    s = full.session(one('run_shell', command='echo hi'), answers={'terminal/output':dict(output='the end', truncated=True, exitStatus=dict(exitCode=0, signal=None))})
    s.prompt()
    assert 'the end' in s.results()[0] and re.search('truncat|cut|beginning', s.results()[0])

def test_R63_the_running_terminal_is_shown_in_its_own_card(full):
    s = full.session(one('run_shell', command='echo hi'))
    s.prompt()
    t = next(iter(s.ed.terminals))
    shown = [u for u in s.ed.of('tool_call')+s.ed.of('tool_call_update') if any(c.get('terminalId')==t for c in u.get('content') or [])]
    assert shown and shown[0]['toolCallId']==list(s.cards)[0]
    lines = [l for _,l in full.lines]
    first = next(i for i,l in enumerate(lines) if b'"session/update"' in l and t.encode() in l)
    assert first<next(i for i,l in enumerate(lines) if b'"terminal/release"' in l and t.encode() in l)
    assert any(c.get('terminalId')==t for c in s.card()['content']) # and stays when the card is done

# ---- cards

def test_R67_each_tool_call_is_one_card_from_start_to_end(bare):
    s = bare.session([[tool('view_file', 'a', path='a.txt'), tool('view_file', 'b', path='none.txt')], OK], {'a.txt':'hello\n'})
    s.prompt()
    a,b = s.cards.values()
    assert a['statuses'][-1]=='completed' and 'in_progress' in a['statuses'] and 'hello' in '\n'.join(strings(a['content']))
    assert b['statuses'][-1]=='failed' and 'none.txt' in '\n'.join(strings(b['content']))
    assert a['title']!=b['title'] and 'a.txt' in a['title'] and a['name']=='view_file'
    assert a['locations'][0]['path']==str(s.path('a.txt'))

def test_R68_the_kind_of_a_card_fits_its_tool(bare):
    calls = [tool('view_file', '1', path='a.txt'), tool('grep', '2', pattern='x'), tool('find', '3', pattern='*'), tool('ls', '4'), tool('run_shell', '5', command='true'),
        tool('edit_file', '6', path='a.txt', old='x', new='y'), tool('create_file', '7', path='b.txt', text='')]
    s = bare.session([calls, OK], {'a.txt':'x\n'})
    s.prompt()
    kinds = {c['name']:c['kind'] for c in s.cards.values()}
    assert kinds['view_file']=='read' and kinds['grep']==kinds['find']=='search' and kinds['ls'] in ('read','search')
    assert kinds['run_shell']=='execute' and kinds['edit_file']==kinds['create_file']=='edit'

def test_R69_a_permission_belongs_to_the_card_that_is_updated_later(full):
    s = full.session([[tool('run_shell', 'a', command='echo one'), tool('run_shell', 'b', command='echo two')], OK])
    s.prompt()
    assert [p['toolCall']['toolCallId'] for p in s.asks]==list(s.cards) and len(s.cards)==2
    one_,two = s.cards.values()
    assert (one_['title'], two['title'])==('echo one','echo two')
    for c in (one_,two): assert c['statuses'][0]=='pending' and c['statuses'][-1]=='completed' and c['statuses'].count('completed')==1
    assert 'one' in s.results()[0] and 'two' in s.results()[1]

def test_R71_a_plan_is_shown_with_its_states(bare):
    items = ['look', 'change', 'check']
    s = bare.session([[tool('set_plan', 'p', items=items)], [tool('update_todo', 'q', id='1', status='active')], [tool('update_todo', 'r', id='1', status='done'),
        tool('update_todo', 's', id='2', status='cancelled')], OK])
    s.prompt()
    plans = [[(e['content'], e['status']) for e in u['entries']] for u in s.ed.of('plan')]
    assert plans[0]==[(i,'pending') for i in items]
    assert ('look','in_progress') in plans[1] and plans[-1]==[('look','completed'),('change','completed'),('check','pending')]

def diffs(card): return [c for c in card.get('content') or [] if c['type']=='diff']

def test_R72_the_permission_shows_the_change_before_it_is_made(full):
    s = full.session([[tool('edit_file', 'a', path='a.txt', old='two', new='TWO')], [tool('create_file', 'b', path='n.txt', text='new\n')], OK],
        {'a.txt':'disk\n'}, buffers={'a.txt':'one\ntwo\n'}, permit='reject_once')
    s.prompt()
    d, = diffs(s.asks[0]['toolCall'])
    assert (d['path'], d['oldText'], d['newText'])==(str(s.path('a.txt')), 'one\ntwo\n', 'one\nTWO\n')
    n, = diffs(s.asks[1]['toolCall'])
    assert n['path']==str(s.path('n.txt')) and n.get('oldText') is None and n['newText']=='new\n'
    assert not s.ed.calls('fs/write_text_file') and s.read('n.txt') is None

def test_R72_the_permission_of_a_command_shows_the_command(bare):
    s = bare.session(one('run_shell', command='echo "whole   command" && true'), permit='reject_once')
    s.prompt()
    assert any('echo "whole   command" && true' in t for t in strings(s.asks[0]['toolCall']))

def test_R73_an_edit_that_cannot_be_made_is_not_asked_about(bare):
    s = bare.session([[tool('edit_file', 'a', path='a.txt', old='not there', new='x'), tool('create_file', 'b', path='../out.txt', text='x')], OK], {'a.txt':'1\n'})
    s.prompt()
    assert not s.asks and all(r.startswith('ERROR: ') for r in s.results()) and [c['status'] for c in s.cards.values()]==['failed','failed']
    assert s.read('a.txt')=='1\n' and not (s.root.parent/'out.txt').exists()

# ---- permission

def test_R74_nothing_happens_before_the_answer(bare):
    go = threading.Event()
    s = bare.session(one('create_file', path='x.txt', text='x'), permit=lambda p: go.wait(60) and 'allow_once')
    id = s.start()
    s.until(lambda: s.asks)
    bare.fence(); time.sleep(.05) # a pause in which it could be done all the same
    assert s.read('x.txt') is None and id not in bare.replies and s.card()['status']=='pending'
    go.set()
    assert s.wait(id)['stopReason']=='end_turn' and s.read('x.txt')=='x'

def test_R75_an_edit_has_these_three_options_word_for_word(bare):
    s = bare.session([[tool('create_file', 'a', path='x', text='x')], [tool('edit_file', 'b', path='x', old='x', new='y')], OK])
    s.prompt()
    for p in s.asks: assert [(o['kind'], o['name']) for o in p['options']]==[('allow_once','Allow'), ('allow_always','Allow every write this session'), ('reject_once','Reject')]
    assert len(s.asks)==2 and s.asks[0]['toolCall']['name']=='create_file'

def test_R75_a_command_names_its_own_grant(bare):
    s = bare.session([[tool('run_shell', 'a', command='git commit -m x')], OK], permit='reject_once')
    s.prompt()
    names = {o['kind']:o['name'] for o in s.asks[0]['options']}
    assert names['allow_once'] and names['reject_once'] and 'write' not in names.get('allow_always', '').lower()
    for o in s.asks[0]['options']:
        if o['kind'].endswith('always'): assert re.search('git|command', o['name']) and 'session' in o['name']

def test_R76_allow_once_asks_again_next_time(bare):
    s = bare.session([[tool('create_file', 'a', path='a', text='')], [tool('create_file', 'b', path='b', text='')], OK])
    s.prompt()
    assert len(s.asks)==2 and s.read('b')==''

def test_R77_R78_allow_always_lets_later_edits_run_and_nothing_else(bare):
    s = bare.session([[tool('create_file', 'a', path='a', text='1')], [tool('edit_file', 'b', path='a', old='1', new='2')], [tool('run_shell', 'c', command='touch c')],
        [tool('add_root', 'd', path='/tmp')], OK], permit=['allow_always', 'reject_once'])
    s.prompt()
    assert [p['toolCall']['name'] for p in s.asks]==['create_file','run_shell','add_root']
    assert s.read('a')=='2' and s.read('c') is None

def test_R79_allow_always_is_no_autopilot(bare):
    s = bare.session([[tool('create_file', 'a', path='a', text='1')], *[[tool('run_shell', f'c{i}', command=f'touch c{i}')] for i in range(3)], OK],
        permit=lambda p: 'allow_always' if p['toolCall']['name']=='create_file' else 'reject_once')
    s.prompt()
    assert len(s.asks)==4 and not list(s.root.glob('c*'))

def test_R80_a_rejected_call_does_not_run_and_the_model_is_told(bare):
    s = bare.session(one('run_shell', command='touch y'), permit='reject_once')
    assert s.stop()=='end_turn'
    assert s.read('y') is None and s.card()['status']=='failed' and s.card()['statuses'].count('failed')==1 and 'in_progress' not in s.card()['statuses']
    assert re.search('refus|reject|declin|said no|not allow', s.results()[0], re.I)

def test_R81_cancelled_is_a_no(bare):
    s = bare.session(one('create_file', path='x', text='x'), permit='cancelled')
    assert s.stop() in ('end_turn','cancelled') and s.read('x') is None and s.card()['status']=='failed'

def test_R82_an_error_is_a_no(bare):
    s = bare.session(one('create_file', path='x', text='x'), permit=Remote(-32603, 'the card could not be shown'))
    assert s.stop()=='end_turn' and s.read('x') is None and s.card()['status']=='failed'

@pytest.mark.parametrize('pipes', [dict(), dict(stdout=False)], ids=['both pipes','stdin'])
def test_R82_an_editor_that_disappears_is_a_no(pipes):
    with agent(script=one('create_file', path='x', text='x'), rc=None) as a:
        s = a.session(permit=NoAnswer)
        s.start(); s.until(lambda: s.asks)
        a.hang_up(**pipes)
        assert a.proc.wait(SOON)==0 and a.leaves_nothing() and s.read('x') is None

SHORT = '''
import asyncio, sys
from ramabana_acp import AcpAgent, serve
asyncio.run(serve(AcpAgent(model=sys.argv[2], timeout=1)))
'''
def test_R83_no_answer_in_time_is_a_no():
    with agent(cmd=[sys.executable, '-c', SHORT], script=one('create_file', path='x', text='x')+one('create_file', path='y', text='y')*9) as a:
        s = a.session(permit=None)
        id = s.start(); s.until(lambda: s.asks, 20)
        assert s.wait(id)['stopReason']=='end_turn' and s.read('x') is None and s.card()['status']=='failed'
        assert re.search('time|answer', s.shown()), 'it was the time that said no'
        s.ed.permit = 'allow_once'
        for _ in range(9): # on a machine that stalls, this editor's yes may be too late as well
            assert s.stop()=='end_turn'
            if s.read('y')=='y': break
        assert s.read('y')=='y'
