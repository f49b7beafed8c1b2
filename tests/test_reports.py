"Further faults that people reported of agents like this one, each with the thread where it was told"
import base64, errno, textwrap
from wire import *

def text(s): return dict(type='text', text=s)
def sh(command, call='t1', **kw): return tool('run_shell', call, command=command, **kw)
def asking(a, sid):
    "The requests of the agent about session `sid`, as they went over the wire"
    ms = [strict(l) for w,l in a.trace if w=='<']
    return [m for m in ms if 'method' in m and 'id' in m and m['params'].get('sessionId')==sid]

# ---- transport

def test_a_broken_ssh_connection_leaves_no_command_running(models): # agentclientprotocol/claude-agent-acp#314
    with agent(models=models, rc=None, **BARE) as a:
        s = a.session(one('run_shell', command='sleep 60'))
        s.start(); poll(a.offspring)
        a.proc.send_signal(signal.SIGHUP)
        assert a.proc.wait(5)==0 and not a.offspring()

def test_a_hangup_that_the_parent_switched_off_stays_off(models): # the same, under nohup
    with agent(models=models, cmd=['sh', '-c', 'trap "" HUP; exec "$@"', 'sh', *PYTHON], **BARE) as a:
        s = a.session([OK]); s.prompt()
        a.proc.send_signal(signal.SIGHUP)
        assert a.session([OK]).stop()=='end_turn'

def test_a_line_separator_in_a_text_does_not_end_the_line(bare): # earendil-works/pi#1908, svkozak/pi-acp#41, getpaseo/paseo#2021
    odd = 'a\u2028b\u2029c\x85d'
    s = bare.session([[dict(text=odd), tool('create_file', path='x.txt', text=odd)], OK])
    n = len(bare.lines)
    s.prompt(odd)
    assert s.said().startswith(odd) and s.read('x.txt')==odd and odd in s.heard()
    assert all(len(l.decode().splitlines())==1 for _,l in bare.lines[n:]), 'every reader sees one line'

def test_a_client_that_knows_only_numbers_as_ids_gets_its_permission_through(bare): # openabdev/openab#1467
    s = bare.session(one('run_shell', command='true'))
    s.prompt()
    assert (qs := asking(bare, s.sid)) and all(type(m['id']) is int for m in qs)

def test_an_answer_whose_id_comes_back_as_a_string_is_the_answer(models): # modelcontextprotocol/rust-sdk#1021
    with agent(models=models, **FULL) as a:
        put = a.put
        a.put = lambda **m: put(**{**m, 'id':str(m['id'])} if 'result' in m else m)
        s = a.session([[tool('view_file', path='a.txt')], OK], buffers={'a.txt':'unsaved\n'}, files={'a.txt':'x'})
        assert s.stop()=='end_turn' and 'unsaved' in s.results()[0]

def test_an_empty_table_of_a_client_in_Lua_is_empty(bare): # orbitalquark/textadept-lsp#1, teal-language/teal-language-server#64
    bare.raw(b'{"jsonrpc":"2.0","id":"lua","method":"session/list","params":[]}\n')
    assert 'sessions' in bare.wait('lua')
    sid = bare.request('session/new', dict(cwd=str(bare.home), mcpServers={}, additionalDirectories={}))['sessionId']
    bare.request('session/close', dict(sessionId=sid))
    with pytest.raises(Remote) as e: bare.request('session/new', dict(cwd=str(bare.home), mcpServers=dict(a=1)))
    assert e.value.code==-32602

def test_signing_in_is_seen_without_a_new_process(models): # github/copilot-cli#3902, MoonshotAI/kimi-cli#1056
    with agent(init=False, **BARE) as a:
        assert 'ramabana-setup' in [m['id'] for m in a.initialize(dict(auth=dict(terminal=True)))['authMethods']]
        with pytest.raises(Remote) as e: a.request('authenticate', dict(methodId='ramabana-setup'))
        assert e.value.code==-32602 and 'terminal' in str(e.value)
        d = a.home/'.config/ramabana-acp'
        d.mkdir(parents=True)
        (d/'.env').write_text('OPENAI_API_KEY=sk-test-0123456789abcdef\n'); (d/'config.toml').write_text(f'[providers.openai]\nbase_url = "{models.base}/v1"\n')
        assert a.request('authenticate', dict(methodId='ramabana-setup'))=={} and a.new(a.home)
    with agent(init=False, env=dict(OPENAI_API_KEY='sk-test-0123456789abcdef'), **BARE) as a:
        assert a.initialize(dict(auth=dict(terminal=True)))['authMethods']==[]
        with pytest.raises(Remote) as e: a.request('authenticate', dict(methodId='ramabana-setup'))
        assert e.value.code==-32602

# ---- editor

LATE = {'a.txt':'old\n'}
def test_a_buffer_that_a_command_has_overtaken_is_not_read(full): # zed-industries/zed#49162, agentclientprotocol/claude-agent-acp#310
    s = full.session([[tool('view_file', path='a.txt')], [sh('echo new > a.txt', 't2')], [tool('view_file', 't3', path='a.txt'), tool('edit_file', 't4', path='a.txt', old='new', new='newer')], OK], LATE, buffers=LATE)
    s.prompt()
    assert '1\tnew' in s.results()[2] and s.read('a.txt')=='newer\n'==s.ed.text('a.txt')

def test_a_file_that_a_command_removed_is_gone_though_a_buffer_shows_it(full): # the same as the two reports above
    s = full.session([[tool('view_file', path='a.txt')], [sh('rm a.txt', 't2')], [tool('view_file', 't3', path='a.txt')], OK], LATE, buffers=LATE)
    s.prompt()
    assert 'no such file' in s.results()[2]

@pytest.mark.parametrize('refuses', [False,True])
def test_a_new_file_in_a_new_folder_reaches_an_editor_that_makes_no_folders(full, refuses): # QwenLM/qwen-code#2294, cnjack/jcode#49
    s = full.session([[tool('create_file', path='new/sub/x.txt', text='1\n')], OK])
    s.ed.answers['fs/write_text_file'] = lambda p: InternalError('no') if refuses or not Path(p['path']).parent.is_dir() else ...
    s.prompt()
    assert s.read('new/sub/x.txt')==(None if refuses else '1\n') and s.path('new').exists()!=refuses

def test_what_the_person_typed_is_read_though_a_command_changed_the_file(full): # the other side of the same
    s = full.session([[tool('view_file', path='a.txt')], [sh('echo new > a.txt', 't2')], [tool('view_file', 't3', path='a.txt')], OK], LATE, buffers=LATE)
    s.ed.answers['terminal/create'] = lambda p: [s.ed.buffers.update({str(s.path('a.txt')):'typed\n'}), ...][1]
    s.prompt()
    assert '1\ttyped' in s.results()[2] and 'the disk has another text' in s.results()[2]

def test_an_undone_edit_is_seen_as_undone(full): # the other side of the same
    s = full.session([[tool('view_file', path='a.txt'), tool('edit_file', 't2', path='a.txt', old='old', new='new')], [sh('true', 't3')], OK, [tool('view_file', 't4', path='a.txt')], OK], LATE, buffers=LATE)
    s.prompt()
    s.ed.buffers[str(s.path('a.txt'))] = 'old\n' # undone in the editor, and not saved
    s.prompt()
    assert '1\told' in s.results()[-1]

def test_unsaved_work_is_not_edited_where_the_editor_takes_no_text(models): # stefandevo/glm-acp-agent#108
    with agent(models=models, fs='read', terminal=False) as a:
        edit = tool('edit_file', path='a.txt', old='two', new='TWO')
        s = a.session([[edit], OK, [edit], OK], {'a.txt':'one\ntwo\n'}, buffers={'a.txt':'one\ntwo\ntyped\n'})
        s.prompt()
        assert s.read('a.txt')=='one\ntwo\n' and 'save it first' in s.results()[0] and not s.asks
        s.path('a.txt').write_text(s.ed.text('a.txt')) # saved
        s.prompt()
        assert s.read('a.txt')=='one\nTWO\ntyped\n'

@pytest.mark.parametrize('disk,old,want', [('one\ntwo\n','two','one\nTWO\n'), ('one\ntwo\n\n','two','one\nTWO\n\n'), ('one\ntwo','two','one\nTWO'), ('one\r\ntwo\r\n','two','one\r\nTWO\r\n')])
def test_an_editor_that_leaves_out_the_last_line_end_does_not_cost_it(full, disk, old, want): # avante-corp/avante.nvim#2901
    s = full.session([[tool('view_file', path='a.txt'), tool('edit_file', 't2', path='a.txt', old=old, new=old.upper())], OK], {'a.txt':disk})
    s.ed.answers['fs/read_text_file'] = lambda p: dict(content=Path(p['path']).read_bytes().decode().removesuffix('\n').removesuffix('\r'))
    s.prompt()
    assert s.path('a.txt').read_bytes().decode()==want and 'another text' not in s.results()[0]

@pytest.mark.parametrize('wait', [{}, None, dict(exitCode=None, signal=None), dict(exitStatus=dict(exitCode=3, signal=None))])
def test_how_a_command_ended_is_taken_from_where_the_editor_tells_it(full, wait): # omercnet/vscode-acp#64, MoonshotAI/kimi-cli#1393
    s = full.session(one('run_shell', command='echo hi; exit 3'))
    s.ed.answers['terminal/wait_for_exit'] = lambda p: (s.ed.terminals[p['terminalId']].wait(), wait)[1]
    s.prompt()
    assert s.results()==['hi\n[exit code 3]']

def test_a_file_that_was_mentioned_is_found_by_its_address(full): # NousResearch/hermes-agent#51842
    s = full.session([[tool('view_file', path='file://$ROOT/a%20b.py#L2-3', start=2, end=3), tool('create_file', 't2', path='file://server/share/x', text='x')], OK], {'a b.py':'one\ntwo\nthree\n'})
    s.prompt([text('look'), dict(type='resource_link', uri=f'file://{s.root}/a%20b.py#L2-3', name='a b.py')])
    assert f'@file://{s.root}/a%20b.py#L2-3' in s.heard(0)
    assert '2\ttwo' in s.results()[0] and s.card(0)['locations'][0]['path']==str(s.path('a b.py'))
    assert 'no path' in s.results()[1] and [p.name for p in s.root.iterdir()]==['a b.py']

@pytest.mark.parametrize('shell', ['/bin/false','/nowhere/fish'])
def test_a_login_shell_that_reads_another_language_is_not_given_sh(models, shell): # anthropics/claude-code#74746
    with agent(models=models, env=dict(SHELL=shell), **FULL) as a:
        s = a.session(one('run_shell', command='for i in 1 2; do x=n$i; echo $x; done'))
        assert s.stop()=='end_turn' and s.results()[0].split()==['n1','n2']

@pytest.mark.parametrize('send', [lambda s: f'data:image/png;base64,{s}', lambda s: '\n'.join(textwrap.wrap(s, 76))+'\n', lambda s: s.rstrip('=')], ids=['data url','lines','no padding'])
def test_a_picture_in_another_spelling_of_base64_is_seen(bare, send): # openclaw/openclaw#18219, validatorjs/validator.js#1424
    png = base64.b64encode(b'\x89PNG\r\n\x1a\n'+bytes(92)).decode()
    assert png.endswith('=')
    s = bare.session([OK])
    assert s.stop([text('look'), dict(type='image', mimeType='image/png', data=send(png))])=='end_turn'
    assert png in json.dumps(s.requests[0])
    bare.request('session/close', dict(sessionId=s.sid)); n = len(s.ed.updates)
    bare.request('session/load', dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[]))
    assert [u['content']['data'] for _,u in s.ed.updates[n:] if u.get('content', {}).get('type')=='image']==[png]

def test_a_project_folder_that_was_moved_away_is_not_made_again(bare): # anthropics/claude-code#83146, #76735
    s = bare.session([[sh('mv "$ROOT" "$ROOT.moved"'), tool('create_file', 't2', path='b.txt', text='x'), tool('view_file', 't3', path='a.txt')], OK], {'a.txt':'1'})
    s.prompt()
    assert 'is gone' in s.results()[1] and not s.root.exists() and len(s.asks)==1

# ---- turn

def quick(name, value):
    "A command that runs the agent with `name` of its modules set to `value`"
    mod,k = name.rsplit('.', 1)
    return [sys.executable, '-c', f'import importlib, sys; from ramabana_acp.entry import run; setattr(importlib.import_module({mod!r}), {k!r}, {value}); run(sys.argv[1:])']

def test_a_silent_turn_gives_a_sign_of_life(models): # FerroxLabs/wayland#1391, block/buzz#935, NousResearch/hermes-agent#74848, maojindao55/freebuddy#96
    with agent(models=models, cmd=quick('ramabana_acp.editor.session.BEAT', .05), **BARE) as a:
        s = a.session([[sh('sleep 60')], OK])
        id = s.start()
        s.until(lambda: sum(len(u)==2 for _,u in s.ed.updates if u['sessionUpdate']=='tool_call_update')>=3)
        assert s.card()['statuses']==['pending','in_progress']
        s.cancel()
        assert s.wait(id)['stopReason']=='cancelled'
        s = a.session([[dict(sleep=60)]])
        id = s.start()
        s.until(lambda: sum(len(u)==1 for _,u in s.ed.updates if u['sessionUpdate']=='session_info_update')>=3)
        s.cancel(); s.wait(id)

# ---- shell

def test_what_a_running_command_prints_is_seen_while_it_runs(bare): # agentclientprotocol/claude-agent-acp#739, MoonshotAI/kimi-cli#421, anomalyco/opencode#13589
    s = bare.session([[sh('echo open https://example.com/device; sleep 60')], OK])
    id = s.start()
    s.until(lambda: s.cards and 'example.com/device' in s.shown())
    assert s.card()['status']=='in_progress'
    s.cancel()
    assert s.wait(id)['stopReason']=='cancelled'
    assert 'example.com/device' in s.shown() and 'cancelled' in s.shown() and s.card()['status']=='failed'

def test_a_command_that_ends_at_once_has_no_update_in_between(bare): # the other side of the same
    s = bare.session(one('run_shell', command='echo hi'))
    s.prompt()
    assert s.card()['statuses']==['pending','in_progress','completed'] and s.shown().count('hi')==1

def test_a_program_that_is_killed_by_the_clock_does_not_take_its_output_along(bare): # microsoft/RD-Agent#613
    s = bare.session(one('run_shell', command=f'{sys.executable} -c "import time; print(123); time.sleep(60)"', timeout=2))
    s.prompt()
    assert '123' in s.results()[0] and 'timed out' in s.results()[0]

# ---- search

def test_a_search_that_found_nothing_says_where_it_did_not_look(bare): # anthropics/claude-code#84161, #67526, anomalyco/opencode#31994, #7498
    s = bare.session([[tool('grep', pattern='needle'), tool('find', 't2', pattern='*.md'), tool('grep', 't3', pattern='needle', path='scripts'), tool('grep', 't4', pattern='hay')], OK],
        {'.gitignore':'scripts/\n', 'scripts/a.md':'needle\n', 'x.txt':'hay', 'node_modules/m/b.md':'needle', '.git/config':'needle'})
    os.symlink('/usr/lib', s.path('linked'))
    s.prompt()
    none = 'left out, as ignored or linked folders: linked, node_modules, scripts; give one as path to search it]'
    a,b,c,d = s.results()
    assert a=='[no match in 2 files; '+none and b=='[no file matches *.md; '+none and c.startswith('scripts/a.md:1') and 'left out' not in c+d

# ---- edit

def test_a_level_of_escapes_too_many_or_too_few_is_named(bare): # anthropics/claude-code#15290, #64479, MoonshotAI/kimi-code#663
    s = bare.session([[tool('edit_file', path='m.c', old='s = "In\nOut";', new='s = "";'), tool('edit_file', 't2', path='m.c', old=r's = \"In\\nOut\";', new='s = "";'),
        tool('edit_file', 't3', path='m.c', old='t = "café";', new='t = "";')], OK], {'m.c':'int x;\ns = "In\\nOut";\nt = "caf\\u00e9";\n'})
    s.prompt()
    a,b,c = s.results()
    assert 'with escapes' in a and '2\ts = "In\\nOut";' in a and 'too many' in b and '2\ts =' in b and 'with escapes' in c and '3\tt =' in c
    assert not s.asks

def test_a_no_break_space_is_named_and_not_called_white_space(bare): # anthropics/claude-code#29869
    s = bare.session(one('edit_file', path='a.md', old='the list in current', new='the list in new'), {'a.md':'x\nthe list in\u00a0current\n'})
    s.prompt()
    assert 'no-break spaces' in s.results()[0] and '2\tthe list in\u00a0current' in s.results()[0]

def test_a_file_in_the_way_of_a_folder_is_named(bare): # MoonshotAI/kimi-code#1065
    s = bare.session([[tool('create_file', path='a.txt/sub/x', text='x'), tool('create_file', 't2', path='new/', text='x')], OK], {'a.txt':'1'})
    s.prompt()
    assert f"{s.path('a.txt')} is a file and no folder" in s.results()[0] and 'is a folder' in s.results()[1] and [p.name for p in s.root.iterdir()]==['a.txt']

def test_a_small_edit_of_a_huge_file_is_a_small_message(bare): # zed-industries/zed#44997, agentclientprotocol/python-sdk#27, anomalyco/opencode#17019
    was = ''.join(f'line {i} of many\n' for i in range(60000))
    s = bare.session(one('edit_file', path='a.txt', old='line 30000 of', new='LINE of'), {'a.txt':was})
    n = len(bare.lines)
    s.prompt()
    assert s.read('a.txt')==was.replace('line 30000 of', 'LINE of') and max(len(l) for _,l in bare.lines[n:])<20_000
    d, = s.asks[0]['toolCall']['content']
    assert 'line 29999 of' in d['oldText'] and d['oldText'].replace('line 30000 of', 'LINE of')==d['newText'] and s.card()['locations'][0]['line']==30001

def test_a_file_with_a_second_name_keeps_it(bare): # Gitlawb/zero#941, coctostan/pi-hashline-readmap#153
    s = bare.session(one('edit_file', path='a.txt', old='one', new='two'), {'a.txt':'one\n'})
    os.link(s.path('a.txt'), s.path('b.txt'))
    s.prompt()
    assert s.read('a.txt')==s.read('b.txt')=='two\n' and [p.name for p in sorted(s.root.iterdir())]==['a.txt','b.txt']

@pytest.mark.skipif(os.getuid()!=0, reason='only root can give files away')
def test_a_file_of_somebody_else_stays_theirs(bare): # Yeachan-Heo/gajae-code#4735
    s = bare.session(one('edit_file', path='a.txt', old='one', new='two'), {'a.txt':'one\n'})
    os.chown(s.path('a.txt'), 12345, 12346); s.path('a.txt').chmod(0o4751)
    s.prompt()
    st = s.path('a.txt').stat()
    assert (s.read('a.txt'), st.st_uid, st.st_gid, st.st_mode & 0o7777)==('two\n', 12345, 12346, 0o4751)

@pytest.mark.parametrize('no', [errno.EBUSY, errno.EACCES])
def test_a_file_that_cannot_be_replaced_is_written_where_it_is(tmp_path, monkeypatch, no): # stacklok/toolhive#3979, vllm-project/semantic-router#4027, tursodatabase/agentfs#165
    from ramabana_acp.core import write_atomic
    (p := tmp_path/'mounted.txt').write_text('a long old text')
    def refuse(*a): raise OSError(no, 'refused')
    monkeypatch.setattr(os, 'replace', refuse)
    ino = p.stat().st_ino
    write_atomic(p, b'new')
    assert (p.read_bytes(), p.stat().st_ino, [*tmp_path.iterdir()])==(b'new', ino, [p])
    with pytest.raises(OSError): write_atomic(tmp_path/'fresh.txt', b'x')
    full,real = [],os.pwrite
    def pwrite(fd, b, n):
        if not full: full.append(1); real(fd, b[:2], n); raise OSError(errno.ENOSPC, 'full')
        return real(fd, b, n)
    monkeypatch.setattr(os, 'pwrite', pwrite)
    with pytest.raises(OSError): write_atomic(p, b'newer and longer')
    assert p.read_bytes()==b'new'
