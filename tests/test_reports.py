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
        assert a.leaves()==0 and a.leaves_nothing()

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

# ---- slips of models, searches and secrets

def looks(bare, files, *cs):
    "The answers to calls of `cs`, each a name and its arguments, in a folder with `files`"
    s = bare.session([[tool(n, f't{i}', **a) for i,(n,a) in enumerate(cs)], OK], files)
    s.prompt()
    return s,s.results()

def test_an_edit_that_builds_on_another_of_the_same_call_is_told_so(bare): # Gitlawb/openclaude#2157, ludusrusso/wildgecu#78, moonbitlang/openseek#263
    s,(r,) = looks(bare, {'a.txt':'a\nb\n'}, ('edit_file', dict(path='a.txt', edits=[dict(old='a', new='c'), dict(old='c\n', new='d\n')])))
    assert 'edit 2 of 2: old is there only after an edit before it' in r and 'No line is like it' not in r and s.read('a.txt')=='a\nb\n'

@pytest.mark.parametrize('was,old,why', [('say \u201chi\u201d', 'say "hi"', 'U+201C LEFT DOUBLE'), ('cafe\u0301', 'caf\u00e9', 'U+0301 COMBINING'), ('a\u200bb', 'ab', 'U+200B ZERO WIDTH'),
    ('\u26a0\ufe0f x', '\u26a0 x', 'U+FE0F'), ('\u4f60\uff0c\u597d', '\u4f60,\u597d', 'U+FF0C FULLWIDTH COMMA'), ('wait\u2026', 'wait...', 'U+2026'), ('Hello', 'hello', 'upper and lower case')])
def test_characters_that_look_alike_or_are_not_seen_are_named(bare, was, old, why): # github/copilot-cli#3254, anthropics/claude-code#63732
    s,(r,) = looks(bare, {'a.txt':f'{was}\n'}, ('edit_file', dict(path='a.txt', old=old, new='x')))
    assert why in r and s.read('a.txt')==f'{was}\n'

@pytest.mark.parametrize('was,old,why', [('if (a < b && c)', 'if (a &lt; b &amp;&amp; c)', 'old has HTML entities'), ('<b>x &amp; y</b>', '<b>x & y</b>', 'white space|entities|nearest')])
def test_html_entities_in_an_edit_are_named(bare, was, old, why): # anthropics/claude-code#9466
    s,(r,) = looks(bare, {'a.txt':f'{was}\n'}, ('edit_file', dict(path='a.txt', old=old, new='x')))
    assert re.search(why, r) and s.read('a.txt')==f'{was}\n'

def test_edits_as_json_in_a_string_with_real_line_breaks_are_made(bare): # coctostan/pi-hashline-readmap#145
    s,_ = looks(bare, {'a.txt':'a\nb\n'}, ('edit_file', dict(path='a.txt', edits='[{"old": "a\nb", "new": "c"}]')))
    assert s.read('a.txt')=='c\n'

def test_placeholders_for_what_is_left_out_are_left_out(bare): # can1357/oh-my-pi#2981, mdegans/drama_llama#115, anthropics/claude-code#95239
    s,rs = looks(bare, {'a.txt':'a\nb\n'}, ('view_file', dict(path='a.txt', start='null', end='')), ('edit_file', dict(path='a.txt', old='a', new='null', all='None', edits='')))
    assert '[lines 1\u20132 of 2]' in rs[0] and s.read('a.txt')=='null\nb\n', 'a text "null" is a text'

def test_the_last_line_may_be_called_minus_one(bare): # OpenHands/openhands-aci#157, wonderwhy-er/DesktopCommanderMCP#517
    _,rs = looks(bare, {'a.txt':'a\nb\nc\n'}, ('view_file', dict(path='a.txt', start=2, end=-1)), ('view_file', dict(path='a.txt', start=2, end=-2)))
    assert '2\tb\n3\tc\n[lines 2\u20133 of 3]' in rs[0] and 'no such lines' in rs[1]

@pytest.mark.parametrize('name', ['View_File','viewFile','VIEW-FILE','functions.view_file'])
def test_a_tool_is_known_by_its_name_in_another_spelling(bare, name): # earendil-works/pi#4517, NousResearch/hermes-agent#15124, gsd-build/gsd-2#4342
    _,(r,) = looks(bare, {'a.txt':'alpha\n'}, (name, dict(path='a.txt')))
    assert '1\talpha' in r

def test_a_changed_spelling_of_a_tool_is_asked_about_all_the_same(bare): # the other side of the same
    s = bare.session([[tool('Run_Shell', command='touch x')], OK], permit='reject_once')
    s.prompt()
    assert len(s.asks)==1 and not s.path('x').exists()

def test_a_call_that_is_made_again_and_again_is_told_so(bare): # anthropics/claude-code#30150, charmbracelet/crush#2130, PrimeIntellect-ai/prime-agent#1326, HKUDS/nanobot#5344
    s = bare.session([*[[tool('view_file', f't{i}', path='no.txt')] for i in range(3)], [tool('ls', 't9')], [tool('view_file', 't10', path='no.txt')], OK])
    s.prompt()
    assert ['times in a row' in r for r in s.results()]==[False, False, True, False, False] and 'same answer 3 times in a row' in s.results()[2]

def test_brackets_in_a_name_are_found(bare): # Trae-AI/TRAE#33, cortexkit/aft#132, n8n-io/n8n#31706
    files = {'app/[id]/page.tsx':'export\n', 'app/[...slug]/page.tsx':'other\n'}
    _,rs = looks(bare, files, ('find', dict(pattern='app/[id]/*.tsx')), ('find', dict(pattern='[...slug]')), ('grep', dict(pattern='export', glob='app/[id]/**')))
    assert rs[0].strip()=='app/[id]/page.tsx' and rs[1].strip()=='app/[...slug]/page.tsx' and '1 match' in rs[2]

def test_a_pattern_with_the_whole_path_finds(bare, tmp_path): # anthropics/claude-code#14880, #13502, OpenHands/software-agent-sdk#718, anomalyco/opencode#46293
    s = bare.session([[tool('find', 't1', pattern=f'{tmp_path}/src/*.py'), tool('grep', 't2', pattern='x', path='lib/*.rb')], OK], {'src/a.py':'x\n', 'b.py':'x\n'}, root=tmp_path)
    s.prompt()
    assert s.results()[0].strip()=='src/a.py' and 'takes no wildcards' in s.results()[1]

def test_lists_of_patterns_are_lists(bare): # the same kind: an empty answer that reads like "there is none"
    _,rs = looks(bare, {'a.ts':'x\n', 'b.js':'x\n', 'c.py':'x\n', 'd,e.md':'x\n'}, ('find', dict(pattern='*.ts,*.js')), ('grep', dict(pattern='x', glob='*.ts|*.py')), ('find', dict(pattern='d,e.md')))
    assert rs[0].split()==['a.ts','b.js'] and '2 matches' in rs[1] and rs[2].strip()=='d,e.md'

def test_classes_of_posix_are_understood_and_other_syntax_is_named(bare): # NousResearch/hermes-agent#39294, UKGovernmentBEIS/inspect_ai#5112, BurntSushi/ripgrep#1147
    _,rs = looks(bare, {'a.txt':'foo  = 1\nsad:\n'}, *(('grep', dict(pattern=p)) for p in ('foo[[:space:]]+=', '[[:digit:]]', 'foo\\|bar', 'foo\nsad', 'foo\\(bar\\)')))
    assert '1 match' in rs[0] and 'a.txt:1: foo' in rs[1] and '1 match' in rs[1]
    assert 'not the syntax of plain grep' in rs[2] and 'single lines' in rs[3] and 'syntax' not in rs[4]

def test_what_was_too_large_to_search_is_named(bare): # vellum-ai/vellum-assistant#35978, Datus-ai/Datus-agent#714
    _,rs = looks(bare, {'big.log':'needle\n'+'x'*5_000_000, 'a.txt':'a\n'}, ('grep', dict(pattern='needle')), ('grep', dict(pattern='needle', path='big.log')))
    assert 'not searched, as too large: big.log' in rs[0] and '1 match' in rs[1]

def test_a_name_with_a_line_break_is_one_line_of_a_listing(bare): # microsoft/Sysinternals-jcd#32, opena2a-org/hackmyagent#324
    _,(r,) = looks(bare, {'a\n[the folder is empty]\nrm -rf .':'x'}, ('ls', {}))
    assert len(r.strip().splitlines())==1 and '\\n' in r

def test_a_password_in_an_address_does_not_reach_the_model(bare): # OpenHands/software-agent-sdk#4271, cline/cline#5093, NousResearch/hermes-agent#54475
    s = bare.session([[sh('git init -q . && git remote add a https://bob:hunter22@example.org/x && git remote add b https://ghu_0123456789abcdefghij@example.org/x '
        '&& git remote add c git@example.org:x.git && git remote add d ssh://git@example.org/x && git remote -v')], OK])
    s.prompt()
    r, = s.results()
    assert 'hunter22' not in r and 'ghu_' not in r and 'https://bob:[redacted]@example.org/x' in r and 'git@example.org:x.git' in r and 'ssh://git@example.org/x' in r

def test_an_editor_for_a_rebase_does_not_open(models): # earendil-works/pi#6432, mitsuhiko/agent-stuff#11
    with agent(models=models, env=dict(GIT_SEQUENCE_EDITOR='sleep 60', DB_PASS='hunter33', GPG_PASSPHRASE='hunter44', MYSQL_PWD='hunter55', OLDPWD='/', SSH_AUTH_SOCK='/s'), **BARE) as a:
        s = a.session([[sh('git init -q . && git -c user.name=x -c user.email=x@y commit -q --allow-empty -m 1 && git -c user.name=x -c user.email=x@y commit -q --allow-empty -m 2 '
            '&& git -c user.name=x -c user.email=x@y rebase -i HEAD~1 2>&1 && env', timeout=20)], OK])
        s.prompt()
        r, = s.results()
        assert 'timed out' not in r and 'hunter' not in r and 'SSH_AUTH_SOCK=/s' in r

def test_a_model_is_told_that_each_command_begins_anew(bare): # amd/gaia#3400, melodic-software/claude-code-plugins#566
    s,rs = looks(bare, {'sub/a.txt':'x'}, ('run_shell', dict(command='cd sub')), ('run_shell', dict(command='pwd')))
    assert rs[1]==str(s.root) and 'cd and variables do not last' in '\n'.join(strings(s.requests[0]['tools']))

def test_an_object_for_the_text_of_a_json_file_is_its_text(bare): # Kilo-Org/kilocode#4131, anthropics/claude-code#6690, langchain-ai/deepagents#4621, elie222/rakazo#237
    s,rs = looks(bare, {}, ('create_file', dict(path='package.json', text={'name':'é', 'list':[1]})), ('create_file', dict(path='a.txt', text={'a':1})))
    assert s.read('package.json')=='{\n  "name": "é",\n  "list": [\n    1\n  ]\n}\n' and "'text' must be a string" in rs[1] and not s.path('a.txt').exists()

def test_a_line_that_is_cut_says_how_to_see_the_rest(bare): # anthropics/claude-code#41092, #17587, zed-industries/zed#64376
    _,rs = looks(bare, {'min.js':'x'*50_000, 'a.txt':'y'*2000}, ('view_file', dict(path='min.js')), ('view_file', dict(path='a.txt')))
    assert 'longer lines are cut after 2,000 characters' in rs[0] and len(rs[0])<3000 and 'cut' not in rs[1]

def test_text_in_an_unknown_encoding_is_said_to_be_guessed(bare): # anthropics/claude-code#62723, XiaomiMiMo/MiMo-Code#67
    data = '\u65e5\u672c\u8a9e = 1\n'.encode('shift-jis')
    s,rs = looks(bare, {'sjis.txt':data, 'u.txt':'\u65e5\n'}, ('view_file', dict(path='sjis.txt')), ('edit_file', dict(path='sjis.txt', old=' = 1', new=' = 2')),
        ('edit_file', dict(path='sjis.txt', old=' = 2', new=' = \u65e5')), ('view_file', dict(path='u.txt')))
    assert 'which is a guess' in rs[0] and 'guess' not in rs[3] and 'cannot hold' in rs[2] and s.path('sjis.txt').read_bytes()==data.replace(b'1', b'2')

# ---- clients

def attached(s): return dict(type='resource', resource=dict(uri=f'file://{s.root}/note.md', text='THE NOTE'), annotations=dict(audience=['assistant']))
def linked(s): return dict(type='resource_link', uri=f'file://{s.root}/note.md', name='note.md')
PICTURE = dict(type='image', mimeType='image/png', data=base64.b64encode(b'\x89PNG\r\n\x1a\n'+bytes(40)).decode())
def told(s, kind, n=0): return [u for _,u in s.ed.updates[n:] if u['sessionUpdate']==kind]
def reload(a, s, method='session/load', cwd=None):
    "What is told while `s`, which is closed first, is opened again, and the answer"
    s.close(); n = len(s.ed.updates)
    r = a.request(method, dict(sessionId=s.sid, cwd=str(cwd or s.root), mcpServers=[])); a.fence()
    return r,[u for _,u in s.ed.updates[n:]]

@pytest.mark.parametrize('order', ['before','behind'])
@pytest.mark.parametrize('what', [attached, linked, lambda s: PICTURE, lambda s: text('You are in an editor.') | dict(annotations=dict(audience=['assistant']))], ids=['note','link','picture','hidden text'])
def test_what_an_editor_attaches_is_no_part_of_a_command(bare, what, order): # RAIT-09/obsidian-agent-client#255, #256, #282
    s = bare.session([OK])
    blocks = lambda t: [what(s), text(t)] if order=='before' else [text(t), what(s)]
    for t in ('/title A tower','/nosuch','/mode'): s.prompt(blocks(t))
    said = s.said()
    assert '“A tower”' in said and 'unknown command /nosuch' in said and 'The mode is `normal`' in said and not s.requests

@pytest.mark.parametrize('what,there', [(attached,'THE NOTE'), (linked,'note.md'), (lambda s: PICTURE,'.png')], ids=['note','link','picture'])
def test_plan_with_something_attached_plans_with_it(bare, what, there): # the same
    s = bare.session([OK])
    s.prompt([text('/plan look at '), what(s), text(' and mend it')])
    h = s.heard()
    assert 'Plan mode' in h and '/plan' not in h and h.index('look at')<h.index(there)<h.index('and mend it')
    assert told(s, 'current_mode_update')[-1]['currentModeId']=='plan'

def test_instructions_of_the_editor_give_no_title(bare): # mrmans0n/alas#967, aaif-goose/goose#8744, #11135
    s = bare.session([OK])
    s.prompt([text('You are in an editor.') | dict(annotations=dict(audience=['assistant'])), attached(s), text('Fix it')])
    assert told(s, 'session_info_update')[0]['title']=='Fix it' and 'You are in an editor.' in s.heard()
    _,us = reload(bare, s)
    assert [u['content'].get('annotations') for u in us if u['sessionUpdate']=='user_message_chunk']==[dict(audience=['assistant'])]*2+[None], 'the editor can hide them again'

def test_an_address_that_only_the_editor_can_read_is_said_to_be_one(bare): # zed-industries/zed#59182
    s = bare.session([OK])
    s.prompt([text('why?'), dict(type='resource_link', uri='zed:///agent/terminal-selection?lines=4', name='Terminal (4 lines)'), linked(s)])
    h = s.heard()
    assert 'only the editor can read' in h and 'Terminal (4 lines)' in h and h.rstrip().endswith(f'@file://{s.root}/note.md')

def test_another_model_has_another_window(bare): # svkozak/pi-acp#87, getpaseo/paseo#1390
    s = bare.session([OK]); n = len(s.ed.updates)
    bare.request('session/set_config_option', dict(sessionId=s.sid, configId='model', value='openai/gpt-5.4')); bare.fence()
    assert not told(s, 'usage_update', n), 'nothing is in the window yet'
    bare.request('session/set_config_option', dict(sessionId=s.sid, configId='model', value='openai/fake-model'))
    s.prompt(); n = len(s.ed.updates)
    bare.request('session/set_config_option', dict(sessionId=s.sid, configId='model', value='openai/gpt-5.4')); bare.fence()
    u, = told(s, 'usage_update', n)
    assert u['size']==1_050_000 and u['used']==told(s, 'usage_update')[0]['used']

def test_a_conversation_that_is_taken_up_again_has_a_meter_and_no_replay(bare): # NousResearch/hermes-agent#74032, anomalyco/opencode#30756
    s = bare.session([OK]); s.prompt()
    was = told(s, 'usage_update')[-1]
    s.close(); n = len(s.ed.updates)
    r = bare.request('session/resume', dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[]))
    s.until(lambda: told(s, 'usage_update', n))
    assert {u['sessionUpdate'] for _,u in s.ed.updates[n:]}=={'available_commands_update','usage_update'} and told(s, 'usage_update', n)==[was] and r['configOptions']

def test_a_file_that_is_not_there_is_no_place_to_follow(full): # can1357/oh-my-pi#10088
    s = full.session([[tool('view_file', path='a.txt:1-20'), tool('view_file', 't2', path='a.txt', start=2), tool('edit_file', 't3', path='b.txt', old='x', new='y'), tool('create_file', 't4', path='c.txt', text='x')], OK], {'a.txt':'1\n2\n'})
    s.prompt()
    assert [c.get('locations') for c in s.cards.values()]==[None, [dict(path=str(s.path('a.txt')), line=2)], None, [dict(path=str(s.path('c.txt')), line=1)]]

@pytest.mark.parametrize('how', ['cancelled','failed'])
def test_no_step_of_a_plan_is_active_when_nobody_works_on_it(bare, how): # augmentcode/auggie#172, openai/codex#22753
    s = bare.session([[tool('set_plan', items=[dict(text='a', status='done'), dict(text='b', status='active'), 'c'])], [dict(sleep=60)] if how=='cancelled' else [dict(http=400, body='no')], OK])
    id = s.start(); s.until(lambda: told(s, 'plan'))
    if how=='cancelled': poll(lambda: len(s.requests)==2); assert s.stopped(id)
    else:
        with pytest.raises(Remote): s.wait(id)
    sts = lambda us: [e['status'] for e in us[-1]['entries']]
    assert sts(told(s, 'plan'))==['completed','pending','pending'] and s.stop()=='end_turn'
    _,us = reload(bare, s)
    assert sts([u for u in us if u['sessionUpdate']=='plan'])==['completed','pending','pending']

def test_a_folder_is_the_same_however_it_is_spelled(bare): # NousResearch/hermes-agent#80662, coddy-project/coddy-agent#215, Yeachan-Heo/gajae-code#4637, sapiom/sapiom-js#422
    s = bare.session([OK]); s.prompt()
    (l := s.root.parent/f'{s.root.name}-link').symlink_to(s.root)
    for d in (l, f'{s.root}/', f'{s.root}/../{s.root.name}'):
        assert [r['sessionId'] for r in bare.request('session/list', dict(cwd=str(d)))['sessions']]==[s.sid]
        reload(bare, s, cwd=d)
    sid = bare.new(l); bare.request('session/prompt', dict(sessionId=sid, prompt=[text('/mode')]))
    assert {r['sessionId'] for r in bare.request('session/list', dict(cwd=str(s.root)))['sessions']}=={s.sid, sid}
    bare.request('session/close', dict(sessionId=sid))

def test_what_is_looked_at_does_not_move_up_in_the_list(bare): # openkaiden/kaiden#2621, zed-industries/zed#58887
    a = bare.session([OK]); a.prompt('first')
    b = bare.session([OK], root=a.root); b.prompt('second')
    rows = lambda: [(r['title'], r['updatedAt']) for r in bare.request('session/list', dict(cwd=str(a.root)))['sessions']]
    was = rows()
    assert [t for t,_ in was]==['second','first']
    reload(bare, a); bare.request('session/set_mode', dict(sessionId=a.sid, modeId='plan')); bare.session([], root=a.root)
    assert rows()==was, 'one that was only opened is no conversation yet'

def test_a_hundred_sessions_at_once_and_none_is_left_open(models): # QwenLM/qwen-code#6292, openclaw/openclaw#53319, openclaw/acpx#47
    with agent(models=models, **BARE) as a:
        count = lambda what: len(os.listdir(f'/proc/{a.proc.pid}/{what}')) if os.path.isdir('/proc/self/fd') else 0
        was = count('fd')
        ids = [a.send('session/new', dict(cwd=str(a.home), mcpServers=[])) for _ in range(100)]
        sids = [a.wait(i, 60)['sessionId'] for i in ids]
        for s in sids: a.check.known.add(s)
        ids = [a.send('session/prompt', dict(sessionId=s, prompt=[text('/mode')])) for s in sids]
        assert len(set(sids))==100 and {a.wait(i, 60)['stopReason'] for i in ids}=={'end_turn'}
        for s in sids: a.request('session/close', dict(sessionId=s))
        poll(lambda: count('fd')<=was+4)

def test_what_was_cancelled_leaves_nothing_half_done(models): # zed-industries/zed#60199's client cancels what it no longer waits for
    with agent(models=models, **BARE) as a:
        s = a.session([OK]*4); s.prompt()
        def cut(method, **kw):
            id = a.send(method, dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[]) | kw); a.put(method='$/cancel_request', params=dict(requestId=id))
            try: return a.wait(id)
            except Remote as e: assert e.code==-32800
        count = lambda: len(os.listdir(f'/proc/{a.proc.pid}/fd')) if os.path.isdir('/proc/self/fd') else 0
        was = count()
        for _ in range(5):
            for m in ('session/new','session/fork','session/load','session/resume'):
                if r := cut(m): a.request('session/delete', dict(sessionId=r.get('sessionId') or 'none')) # it was there before it was cancelled
        poll(lambda: count()<=was+2 and len(a.request('session/list', dict(cwd=str(s.root)))['sessions'])==1)
        assert s.stop()=='end_turn'
        cut('session/close')
        a.request('session/load', dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[]))
        assert s.stop()=='end_turn'

def test_a_load_in_the_middle_of_a_turn_shows_what_there_is_and_the_turn_goes_on(bare): # rebornix/Agmente#31
    s = bare.session([[dict(text='part one'), sh('until [ -e go ]; do sleep .02; done; echo hi')], [dict(text='end')]])
    id = s.start(); s.until(lambda: s.cards and s.card()['status']=='in_progress')
    n = len(s.ed.updates)
    bare.request('session/load', dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[]))
    assert [(u['sessionUpdate'], u.get('status')) for _,u in s.ed.updates[n:]][:3]==[('user_message_chunk',None), ('agent_message_chunk',None), ('tool_call','in_progress')]
    s.path('go').touch()
    assert s.wait(id)['stopReason']=='end_turn' and s.card()['status']=='completed' and s.said().endswith('end')

def test_a_session_that_is_deleted_in_a_turn_does_not_come_back(bare): # shindgew/agy-acp#91
    s = bare.session([[sh('sleep 60')]])
    id = s.start(); s.until(lambda: s.cards and s.card()['status']=='in_progress')
    bare.request('session/delete', dict(sessionId=s.sid))
    assert s.wait(id)['stopReason']=='cancelled' and bare.request('session/list', dict(cwd=str(s.root)))['sessions']==[]
    for m in ('session/load','session/prompt'):
        with pytest.raises(Remote) as e: bare.request(m, dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[], prompt=[text('x')]))
        assert e.value.code==-32002

def test_a_card_is_pending_while_it_is_asked_about(full): # xenodium/agent-shell#369
    s = full.session(one('run_shell', command='true'))
    seen = []
    s.ed.answers['session/request_permission'] = lambda p: (seen.append([*s.card()['statuses']]), ...)[1]
    s.prompt()
    assert seen==[['pending']]

def test_a_replayed_card_is_told_as_it_was(bare): # zed-industries/codex-acp#191, aaif-goose/goose#10662
    s = bare.session([[sh('echo hi'), tool('view_file', 't2', path='a.txt', start=2)], [tool('edit_file', 't3', path='a.txt', old='one', new='two')], OK], {'a.txt':'one\nx\n'})
    s.prompt()
    was = {k:{f:c.get(f) for f in ('title','kind','status','locations','rawInput')} for k,c in s.cards.items()}
    _,us = reload(bare, s)
    now = {u['toolCallId']:u for u in us if u['sessionUpdate']=='tool_call'}
    assert {k:{f:now[k].get(f) for f in was[k]} for k in was}==was and all(u['content'] for u in now.values())

def test_arguments_in_a_wrapper_are_taken_out_of_it(bare): # openclaw/openclaw#142304
    _,rs = looks(bare, {'a.txt':'alpha\n'}, ('view_file', dict(arguments=dict(path='a.txt'))), ('view_file', dict(input='{"path": "a.txt"}')), ('view_file', dict(input=dict(path='a.txt'), start=1)))
    assert all('1\talpha' in r for r in rs[:2]) and "unknown argument 'input'" in rs[2]

def test_what_lies_beside_a_folder_that_is_gone_is_not_listed(bare, tmp_path): # found beside anthropics/claude-code#83146
    (tmp_path/'work').mkdir(); (tmp_path/'work2').mkdir()
    s = bare.session([[sh('rm -rf "$PWD"')], [tool('ls', 't2')], OK], root=tmp_path/'work')
    s.prompt()
    assert 'no such file or folder' in s.results()[1] and 'work2' not in s.results()[1]

def test_a_mention_is_read_as_the_prompt_spells_it(full): # zed-industries/zed#51607, the addresses of symbols, selections and folders
    s = full.session([[tool('view_file', path='@file://$ROOT/a.txt?symbol=f#L2:3'), tool('ls', 't2', path='@file://$ROOT/d/'), tool('grep', 't3', pattern='x', path='file://$ROOT/d')], OK], {'a.txt':'one\n', 'd/b.txt':'x\n'})
    s.prompt([dict(type='resource_link', uri=f'file://{s.root}/d/', name='d')])
    assert '1\tone' in s.results()[0] and s.results()[1].startswith('b.txt') and 'd/b.txt:1: x' in s.results()[2]
