"Conversations that last: what is written is what comes back, whatever happened to the file, the disk or the process."
import base64, copy, errno, gc, json, os, signal, stat, subprocess, sys, threading, time
from pathlib import Path
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from ramabana_acp.core import InvalidParams, NotFound, secret
from ramabana_acp.agent.history import History
from ramabana_acp.agent.journal import Disk, Held, Journal, NotSaved, line, scan
from ramabana_acp.agent.library import Library, folder_of
from ramabana_acp.agent.records import check, fold, lean
from ramabana_acp.agent.reopen import UNBEGUN, reopen
from ramabana_acp.models.messages import INTERRUPTED, Usage, assistant, call, pair, result, results, text, thinking, user
from ramabana_acp.workspace.activity import Activity

PNG = b'\x89PNG\r\n\x1a\n'+b'x'*50
few = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def typed(s): return [dict(type='text', text=s)]
def mode(p): return oct(stat.S_IMODE(os.stat(p).st_mode))
def records(h): return [json.loads(l) for l in Path(h.path).read_bytes().splitlines()]

@pytest.fixture
def lib(tmp_path): return Library(tmp_path/'state', program='the test')

@pytest.fixture
def cwd(tmp_path): (p := tmp_path/'work').mkdir(); return str(p)

def say(h, s, answer='yes', mid=None):
    time.sleep(.001) # times are kept in milliseconds, and the newest is first
    h.prompt(typed(s))
    h.messages += [user(s), assistant([text(answer)])]
    h.save(mid=mid)
    h.end('end_turn', Usage(10, 5))

def begun(h, s='go', ids=('c1','c2'), tool='run_shell'):
    "A turn up to its calls"
    h.prompt(typed(s))
    cs = [call(i, tool, dict(command='make')) for i in ids]
    h.messages += [user(s), assistant([text('I do it.'), *cs], 'calls')]
    h.save(mid='m1')
    return cs, Activity(h.act)

def died(h):
    "What the system does when the process of `h` is killed"
    for fd in (h.journal.fd, h.journal.lock):
        if fd is not None: os.close(fd)
    h.journal.fd = h.journal.lock = None

class Quick(Disk):
    "A disk without waiting"
    def sync(self, fd, name): pass
    def folder(self, path): pass

# -- what is written comes back

strs = st.text(st.characters(), max_size=20) | st.sampled_from(['\ud83d', 'a\0b', '\u2028\r\n', '{"k":"msg"}', 'é'*9])
json_ = st.recursive(st.none()|st.booleans()|st.integers(-2**60, 2**60)|st.floats(allow_nan=False)|strs, lambda o: st.lists(o, max_size=3)|st.dictionaries(strs, o, max_size=3), max_leaves=6)
media_ = st.builds(lambda b,i: dict(type='image' if i else 'file', mime='image/png' if i else 'x/y', data=b), st.binary(min_size=1, max_size=9), st.booleans())
said = st.builds(text, strs) | st.builds(lambda s,g,x: thinking(s, g, **({'data':x} if x is not None else {})), strs, st.none()|strs, json_)
called = st.builds(lambda i,a,b: call(f'c{i}', 'ls', a, b), st.integers(0, 10**9), st.dictionaries(strs, json_, max_size=3), st.none()|strs)
users = st.builds(lambda ps: dict(role='user', content=ps), st.lists(st.builds(text, strs)|media_, max_size=3))
answers = st.builds(lambda ps,s: assistant(ps, s, Usage(1, 2)), st.lists(said, max_size=3), st.sampled_from(['end','cut','cancelled','length']))
def rounds(cs):
    rs = [st.builds(lambda t,ok,m,c=c: result(c, t, ok, m), strs, st.booleans(), st.lists(media_, max_size=1)) for c in cs]
    return st.tuples(*rs).map(lambda rs: [assistant([text('x'), *cs], 'calls'), results(rs)])
steps = users.map(lambda m: [m]) | answers.map(lambda m: [m]) | st.lists(called, min_size=1, max_size=3, unique_by=lambda c: c['id']).flatmap(rounds)
transcripts = st.lists(steps, max_size=6).map(lambda ls: [m for l in ls for m in l])

@few
@given(transcripts)
def test_any_transcript_comes_back_equal(tmp_path_factory, ms):
    h = History(tmp_path_factory.mktemp('h')/'s', 's', '/w', disk=Quick())
    h.prompt(typed('x'))
    for m in ms:
        for i in range(1, len(m.get('results', ()))): h.save(part=m['results'][:i])
        h.messages.append(m)
        h.save()
    h.end('end_turn')
    h.close()
    h2 = reopen(h.dir)
    h2.close()
    assert h2.messages==ms and repr(h2.messages)==repr(ms)
    assert all(json.loads(l) for l in Path(h.path).read_bytes().split(b'\n')[:-1])

@few
@given(transcripts, st.lists(st.tuples(st.sampled_from(['del','ins','slim','deep','swap','pair','front','part']), st.integers(0, 10**6)), max_size=5), transcripts)
def test_any_change_of_the_messages_is_saved(tmp_path_factory, ms, changes, more):
    "Compaction, a refused prompt, a picture cut out, a turn left behind: whatever became of the list is what comes back"
    h = History(tmp_path_factory.mktemp('h')/'s', 's', '/w', disk=Quick())
    h.prompt(typed('x'))
    h.messages += ms
    h.save()
    for what,n in changes:
        l = h.messages
        i = n % (len(l)+1)
        if what=='del': del l[i:]
        elif what=='ins': l.insert(i, user(f'new {n}'))
        elif what=='slim' and l: l[-1][('results' if l[-1]['role']=='tool' else 'content')] = []
        elif what=='deep' and l and l[i-1]['role']=='user': l[i-1] = user('short')
        elif what=='swap': l[:i] = l[:i][::-1]
        elif what=='front': l[:i] = [user(f'summary {n}')]
        elif what=='part': h.save(part=[result(call('p', 'ls', {}), 'half')])
        elif what=='pair': l[:] = pair(l)
        h.save()
        half = [results(h.part[1])] if h.part else []
        assert [m for _,m in fold(h.journal.all(check), h.journal.file)]==h.messages+half
    h.messages += more
    h.save()
    h.journal.sync()
    half = [results(h.part[1])] if h.part else []
    h.close()
    assert [m for _,m in fold(Journal(h.dir).load(check), h.journal.file)]==h.messages+half
    h2 = reopen(h.dir, disk=Quick())
    h2.messages[:1] = [user('in front')]
    h2.messages.append(user('at the end'))
    h2.save()
    h2.close()
    h3 = reopen(h.dir, disk=Quick())
    assert h3.messages==h2.messages
    h3.close()

def test_a_conversation_is_the_same_object_after_reopening_that_a_turn_goes_on_with(lib, cwd):
    h = lib.new('s1', cwd)
    h.prompt(typed('look'))
    c = call('c1', 'view_file', dict(path='a.png'))
    h.messages += [user('look', [PNG]), assistant([thinking('hm', 'seal', redacted=['x']), c], 'calls'), results([result(c, 'an image', media=[dict(type='image', mime='image/png', data=PNG)])]), assistant([text('yes')])]
    h.end('end_turn')
    was = copy.deepcopy(h.messages)
    h.close()
    h = lib.open('s1')
    assert h.messages==was and os.listdir(h.dir+'/media')==[os.path.basename(os.listdir(h.dir+'/media')[0])]
    say(h, 'on')
    h.close()
    assert lib.open('s1').messages[:4]==was and h.use==Usage(10, 5)

def test_a_medium_whose_file_is_gone_becomes_words(lib, cwd):
    h = lib.new('s1', cwd)
    h.prompt([dict(type='image', mimeType='image/png', data=base64.b64encode(PNG).decode())])
    h.messages.append(user('', [PNG]))
    h.end('end_turn')
    h.close()
    for f in Path(h.dir, 'media').iterdir(): f.unlink()
    assert lib.open('s1').messages==[user('[image/png left out: its file is gone]')]

def test_an_unknown_kind_of_record_is_kept_and_skipped(lib, cwd):
    h = lib.new('s1', cwd)
    say(h, 'one')
    h.append('hologram', x=[1])
    h.close()
    h = lib.open('s1')
    say(h, 'two')
    assert [r['k'] for r in records(h)].count('hologram')==1 and len(h.messages)==4
    assert 'hologram' in [r['k'] for r in records(lib.fork('s1', 'f'))]

def test_a_key_of_this_process_is_in_no_file(lib, cwd):
    key = secret('sk-ant-0123456789abcdefghij')
    h = lib.new('s1', cwd)
    say(h, f'my key is {key}', f'it is {key}')
    h.said(f'{key}', 'm')
    h.close()
    assert not any(key.encode() in p.read_bytes() for p in Path(lib.root).rglob('*') if p.is_file())

# -- torn, cut and garbled files

def test_C152_a_cut_at_every_byte_of_the_last_record_loses_that_record_only(lib, cwd):
    h = lib.new('s1', cwd)
    say(h, 'one')
    h.prompt(typed('two é'))
    h.close()
    raw = Path(h.path).read_bytes()
    last = raw[:-1].rfind(b'\n')+1
    for cut in range(last, len(raw)+1):
        Path(h.path).write_bytes(raw[:cut])
        h = lib.open('s1')
        assert h.prompts==(2 if cut>=len(raw)-1 else 1), cut
        say(h, 'three')
        h.close()
        ls = Path(h.path).read_bytes().split(b'\n')
        assert ls[-1]==b'' and all(json.loads(l) for l in ls[:-1])
        h = lib.open('s1')
        assert [m['content'][0]['text'] for m in h.messages]==['one','yes','three','yes']
        h.close()

@few
@given(st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=30)|st.sampled_from([b'\0'*500, b'{"k":"msg","n":2,"m":5}', b'{"k":"hist","of":[[0,999999999999]]}', b'[]', b'null', b'{"k":"result","n":1,"r":{}}', b'{"k":"card","id":3}', b'{"k":"plan","items":[1]}', b'['*3000, b'{"k":"prompt","blocks":"x"}', b'{"k":"end","use":{"input":"x"}}'])), min_size=1, max_size=4))
def test_C151_random_garbage_between_the_lines_loses_nothing(tmp_path_factory, junk):
    d = tmp_path_factory.mktemp('h')
    h = History(d/'s', 's', '/w', disk=Quick())
    for i in range(3): say(h, f'prompt {i}')
    h.close()
    ls = Path(h.path).read_bytes().splitlines(True)
    for i,b in junk: ls.insert(i % len(ls)+1, (b.replace(b'\n', b'') or b'x')+b'\n')
    Path(h.path).write_bytes(b''.join(ls))
    h2 = reopen(h.dir)
    if any(b'"hist"' in b for _,b in junk): assert all(m in h.messages for m in h2.messages)
    else: assert h2.messages==h.messages and h2.title=='prompt 0'
    say(h2, 'on')
    h2.close()
    assert all(json.loads(l) for l in Path(h.path).read_bytes().splitlines())
    assert list(reopen(h.dir, write=False).replay())[-1]['title']=='prompt 0'
    assert mode(h.path)=='0o600'

def test_C151_nul_bytes_at_the_end_and_before_a_good_record(lib, cwd):
    h = lib.new('s1', cwd)
    for s in ('one','two','three'): say(h, s)
    h.close()
    raw = Path(h.path).read_bytes()
    Path(h.path).write_bytes(raw[:-300]+b'\0'*300)
    h = lib.open('s1')
    assert [m['content'][0]['text'] for m in h.messages][:4]==['one','yes','two','yes'] and b'\0' not in Path(h.path).read_bytes()
    h.close()
    i = raw.index(b'{"k":"prompt"')
    Path(h.path).write_bytes(raw[:i]+b'\0'*77+raw[i:])
    h = lib.open('s1')
    assert (h.prompts, len(h.messages))==(3, 6)
    assert lib.list()['sessions'][0]['updatedAt']==h.row()['updatedAt']

def test_what_is_bad_is_in_quarantine_byte_for_byte(lib, cwd):
    h = lib.new('s1', cwd)
    say(h, 'one')
    h.close()
    bad = bytes(range(1, 256)).replace(b'\n', b'')
    with open(h.path, 'ab') as f: f.write(bad+b'\n')
    say(h := lib.open('s1'), 'two')
    q = json.loads(Path(h.dir, 'quarantine.jsonl').read_bytes())
    assert q['bytes'].encode('utf-8', 'surrogateescape')==bad and mode(h.dir+'/quarantine.jsonl')=='0o600'

def test_a_lost_line_in_the_middle_mixes_nothing_up(lib, cwd):
    h = lib.new('s1', cwd)
    for i in range(4): say(h, f'p{i}', f'a{i}')
    del h.messages[2:4]
    h.save()
    h.close()
    ls = Path(h.path).read_bytes().splitlines(True)
    i = next(i for i,l in enumerate(ls) if b'"p2"' in l and b'"msg"' in l)
    Path(h.path).write_bytes(b''.join(ls[:i]+[b'garbage\n']+ls[i+1:]))
    assert [m['content'][0]['text'] for m in lib.open('s1').messages]==['p0','a0','a2','p3','a3']

def test_a_file_of_nothing_but_garbage_is_no_session_and_is_not_thrown_away(lib, cwd):
    h = lib.new('s1', cwd)
    say(h, 'one')
    h.close()
    Path(h.path).write_bytes(b'garbage\n'*3)
    os.unlink(h.dir+'/meta.json')
    with pytest.raises(NotFound): lib.open('s1')
    assert lib.list()['sessions']==[] and Path(h.dir, 'quarantine.jsonl').read_bytes().count(b'garbage')==3

def test_a_newer_minor_version_is_written_and_a_newer_major_one_is_not(lib, cwd):
    for v,saved in (([1,9],True), ([2,0],False)):
        h = lib.new(sid := f's{v[0]}', cwd)
        say(h, 'one')
        h.append('head', v=v, id=sid, cwd=cwd)
        h.close()
        raw,told = Path(h.path).read_bytes(),[]
        h = lib.open(sid)
        h.on_trouble = told.append
        say(h, 'two')
        assert len(h.messages)==4 and len(list(h.replay()))==5
        assert (Path(h.path).read_bytes()!=raw)==saved and bool(told)!=saved
        if not saved:
            with pytest.raises(NotSaved, match='newer version'): h.sync()
        h.close()

# -- turns that a crash cut off

def test_C157_a_call_that_was_begun_is_interrupted_and_one_that_was_not_did_nothing(lib, cwd):
    h = lib.new('s1', cwd)
    cs,acts = begun(h, ids=('c1','c2','c3'))
    acts.finish(acts.start('run_shell', {}, id='c1'), 'done', True)
    h.save(part=[result(cs[0], 'done')])
    acts.start('run_shell', dict(command='sleep 99'), id='c2')
    died(h)
    h = lib.open('s1')
    assert [r['text'] for r in h.messages[-1]['results']]==['done', INTERRUPTED, UNBEGUN]
    assert pair(h.messages)==h.messages
    evs = list(h.replay())
    assert [(e['card'].id, e['card'].state) for e in evs if e['type']=='card']==[('c1','complete'), ('c2','failed')]
    say(h, 'on')
    h.close()
    h = lib.open('s1')
    assert [r['k'] for r in records(h)].count('end')==2 and h.messages[2]['results'][1]['text']==INTERRUPTED

@pytest.mark.parametrize('n', range(1, 16))
def test_a_journal_that_ends_after_any_record_reopens_legally(lib, cwd, n):
    h = lib.new('s1', cwd)
    cs,acts = begun(h)
    rs = []
    for c in cs:
        acts.finish(acts.start('run_shell', {}, id=c['id']), 'done', True)
        rs.append(result(c, 'done'))
        h.save(part=rs)
    h.messages += [results(rs), assistant([text('Done.')])]
    h.end('end_turn')
    whole = [dict(m) for m in h.messages]
    h.close()
    ls = Path(h.path).read_bytes().splitlines(True)
    Path(h.path).write_bytes(b''.join(ls[:n]))
    if n<2:
        with pytest.raises(NotFound): lib.open('s1')
        return
    h = lib.open('s1')
    assert pair(h.messages)==h.messages and (n<len(ls) or h.messages==whole)
    assert all(e['card'].done for e in h.replay() if e['type']=='card')
    say(h, 'on')
    h.close()
    assert pair(ms := lib.open('s1').messages)==ms

def test_a_turn_that_was_left_behind_writes_no_more(lib, cwd):
    h = lib.new('s1', cwd)
    cs,acts = begun(h)
    old,act = h.messages,acts.start('run_shell', {}, id='c1')
    h.prompt(typed('on'), history=pair(old))
    old.append(results([result(cs[0], 'late')]))
    h.save(old)
    acts.finish(act, 'late', True)
    h.end('cancelled', history=old)
    h.messages += [user('on'), assistant([text('yes')])]
    h.end('end_turn')
    h.close()
    assert 'late' not in Path(h.path).read_text() and lib.open('s1').messages==h.messages

# -- the disk

def test_nothing_is_written_before_the_first_prompt(lib, cwd):
    h = lib.new('s1', cwd)
    h.setting(model='demo')
    h.planned([])
    h.close()
    assert not os.path.exists(lib.root) and lib.list()==dict(sessions=[])
    h = lib.new('s2', cwd)
    h.setting(model='demo', effort='high')
    h.setting(effort=None)
    say(h, 'hi')
    h.close()
    assert lib.open('s2').settings==dict(model='demo')

def test_write_then_fsync_then_the_side_effect_and_the_answer(tmp_path):
    seen = []
    h = History(tmp_path/'s', 's', '/w', disk=Disk(lambda what,name: seen.append((what,name))))
    cs,acts = begun(h, ids=('c1',))
    acts.start('view_file', {}, id='c0')
    assert ('fsync','transcript.jsonl') not in seen, 'a read waits for no disk'
    act = acts.start('run_shell', dict(command='x'), id='c1', state='awaiting')
    assert ('fsync','transcript.jsonl') not in seen, 'nothing happens while the person is asked'
    act.state = 'running'
    acts.change(act)
    assert seen[-2:]==[('write','transcript.jsonl'), ('fsync','transcript.jsonl')] and records(h)[-1]['state']=='running'
    assert seen.index(('fsync','s/'))<seen.index(('write','transcript.jsonl')), 'the name of the file lasts before its content'
    acts.finish(act, 'done', True)
    h.messages.append(results([result(cs[0], 'done')]))
    h.end('end_turn')
    assert seen[-1]==('fsync','transcript.jsonl') and records(h)[-1]['k']=='end'

class Sick(Disk):
    "A disk that fails as told: `full` writes half, `io` forgets what it was to sync"
    ill = None
    def write(self, fd, data, name):
        if self.ill!='full': return super().write(fd, data, name)
        os.write(fd, bytes(data)[:len(data)//2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    def sync(self, fd, name):
        if self.ill=='io': os.ftruncate(fd, max(os.fstat(fd).st_size-20, 0)); raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd, name)

@pytest.mark.parametrize('ill', ['full','io'])
def test_C158_a_full_disk_is_told_once_a_turn_and_what_waited_is_saved_later(tmp_path, ill):
    disk,told = Sick(),[]
    h = History(tmp_path/'s', 's', '/w', disk=disk, on_trouble=told.append)
    say(h, 'one')
    disk.ill = ill
    say(h, 'two', 'é'*99)
    begun(h, 'two and a half', ids=())
    h.end('end_turn')
    assert len(told)==2 and 'is not being saved' in told[0]
    with pytest.raises(NotSaved): h.sync()
    assert [e['type'] for e in h.replay()].count('user')==3
    disk.ill = None
    say(h, 'three')
    assert len(told)==2
    ms = h.messages
    h.close()
    assert reopen(h.dir).messages==ms and all(json.loads(l) for l in Path(h.path).read_bytes().splitlines())

def test_C158_a_disk_that_is_full_from_the_start(tmp_path):
    disk,told = Sick(),[]
    disk.ill = 'full'
    h = History(tmp_path/'s', 's', '/w', disk=disk, on_trouble=told.append)
    say(h, 'one')
    assert len(told)==1 and 'No space left' in told[0] and h.row()['title']=='one'
    disk.ill = None
    say(h, 'two', mid='m')
    h.close()
    assert len(reopen(h.dir).messages)==4
    disk.ill = 'full'
    h = History(tmp_path/'t', 't', '/w', disk=disk, on_trouble=told.append)
    say(h, 'one')
    h.close()
    assert not os.path.exists(h.dir), 'what was never saved leaves nothing behind'

def test_a_state_home_that_cannot_be_written_is_told(tmp_path):
    (tmp_path/'state').write_text('a file where a folder should be')
    told = []
    h = Library(tmp_path/'state').new('s', '/w')
    h.on_trouble = told.append
    say(h, 'one')
    assert told and len(h.messages)==2

def test_a_session_whose_folder_was_removed_is_not_saved_and_says_so(lib, cwd):
    import shutil
    h,told = lib.new('s1', cwd),[]
    h.on_trouble = told.append
    say(h, 'one')
    shutil.rmtree(h.dir)
    say(h, 'two')
    assert len(told)==1

@pytest.mark.parametrize('umask', [0, 0o022, 0o277])
def test_C185_transcripts_are_private_whatever_the_umask(tmp_path, umask):
    was = os.umask(umask)
    try:
        lib = Library(tmp_path/'state')
        h = lib.new('s1', '/w')
        h.prompt([dict(type='image', mimeType='image/png', data=base64.b64encode(PNG).decode())])
        say(h, 'one')
        h.close()
        os.chmod(h.path, 0o644)
        with open(h.path, 'ab') as f: f.write(b'x\n{"k":"later"}\n')
        h = lib.open('s1')
        say(h, 'two')
        lib.fork('s1', 'f1').close()
    finally: os.umask(was)
    ps = [p for p in Path(lib.root).rglob('*')]+[Path(lib.root)]
    assert len(ps)>12 and {(p.is_dir(), mode(p)) for p in ps}=={(True,'0o700'), (False,'0o600')}

# -- one writer

CHILD = '''
import sys, time
from ramabana_acp.agent.library import Library
h = Library(sys.argv[1], program='the other editor').open('s1')
h.prompt([dict(type='text', text='from the child')])
h.sync()
print('has it', flush=True)
time.sleep(60)
'''

@pytest.fixture
def child(lib, cwd):
    say(h := lib.new('s1', cwd), 'one')
    h.close()
    p = subprocess.Popen([sys.executable, '-c', CHILD, os.path.dirname(lib.root)], stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline()=='has it\n'
    yield p
    p.kill()
    p.wait()
    p.stdout.close()

def test_a_second_process_is_told_who_has_the_session_and_a_dead_holder_has_nothing(lib, child):
    for f in (lambda: lib.open('s1'), lambda: lib.delete('s1')):
        with pytest.raises(Held, match=rf'the other editor \(process {child.pid} on ') as e: f()
        assert e.value.code==-32600 and str(child.pid) in e.value.data['holder']
    assert [e['type'] for e in lib.open('s1', write=False).replay()].count('user')==2, 'looking is free'
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    h = lib.open('s1')
    assert (h.prompts, records(h)[-1]['stop'])==(2, 'interrupted')
    h.close()
    assert lib.delete('s1') and lib.list()['sessions']==[]

def test_a_stale_lock_file_names_nobody_and_locks_nothing(lib, cwd):
    say(h := lib.new('s1', cwd), 'one')
    h.close()
    Path(h.dir, 'lock').write_text('{"pid": 1, "program": "an old one"}')
    lib.open('s1').close()

def test_of_many_threads_one_gets_the_session(lib, cwd):
    say(h := lib.new('s1', cwd), 'one')
    h.close()
    got,go = [],threading.Barrier(8)
    def one():
        go.wait()
        try: got.append(lib.open('s1'))
        except Held: got.append(None)
    ts = [threading.Thread(target=one) for _ in range(8)]
    for t in ts: t.start()
    for t in ts: t.join()
    assert len([h for h in got if h])==1

# -- the list

def stored(lib, cwd, n, at=None, start=0):
    "Write `n` sessions the way they are on disk"
    d = Path(lib.root, folder_of(cwd))
    d.mkdir(parents=True, exist_ok=True)
    for i in range(start, start+n):
        s = d/f's{i:05}'
        s.mkdir()
        t = at or f'2026-01-01T{i//3600%24:02}:{i//60%60:02}:{i%60:02}.{i//86400:03}Z'
        (s/'meta.json').write_text(json.dumps(dict(sessionId=s.name, cwd=cwd, title=f'title {i}', updatedAt=t)))
        (s/'transcript.jsonl').write_bytes(line(dict(k='head', v=[1,0], at=1, id=s.name, cwd=cwd))+line(dict(k='prompt', at=1, blocks=typed(f'title {i}'))))

def walk(lib, between=lambda: None, **kw):
    pages,c = [],None
    while True:
        p = lib.list(cursor=c, **kw)
        pages.append([r['sessionId'] for r in p['sessions']])
        if not (c := p.get('nextCursor')): return pages
        between()

def test_C154_pages_with_equal_times(lib, cwd, tmp_path):
    stored(lib, cwd, 120, '2026-01-01T00:00:00.000Z')
    pages = walk(lib)
    ids = [i for p in pages for i in p]
    assert [len(p) for p in pages]==[50,50,20] and len(set(ids))==120
    n = iter(range(9))
    def more(): say(h := lib.new(f'new{next(n)}', cwd), 'x'); h.close()
    ids = [i for p in walk(lib, more) for i in p]
    assert len(ids)==len(set(ids))==120 and next(n)==2
    assert walk(lib)[0][:2]==['new1','new0']

def test_C155_the_cwd_filter_comes_before_paging(lib, cwd, tmp_path):
    other,link = tmp_path/'other',tmp_path/'link'
    other.mkdir()
    link.symlink_to(cwd)
    stored(lib, str(other), 100, '2026-02-01T00:00:00.000Z')
    stored(lib, cwd, 1, '2026-01-01T00:00:00.000Z', start=500)
    for c in (cwd, cwd+'/', str(link)): assert lib.list(cwd=c)==dict(sessions=[dict(sessionId='s00500', cwd=cwd, title='title 500', updatedAt='2026-01-01T00:00:00.000Z')])
    assert lib.list(cwd=str(tmp_path))==dict(sessions=[])
    for c in ('work', '', '~', 5): 
        with pytest.raises(InvalidParams, match='cwd'): lib.list(cwd=c)

def test_a_cursor_that_was_not_given_is_refused(lib, cwd):
    stored(lib, cwd, 2)
    for c in ('', 'x', 'é', 5, {}, base64.b64encode(b'[1,2]').decode(), base64.b64encode(b'['*9999).decode(), base64.b64encode(b'["2026-01-01T00:00:00.000Z","../x"]').decode()):
        with pytest.raises(InvalidParams, match='cursor'): lib.list(cursor=c)

def test_live_sessions_know_better_than_the_disk(lib, cwd):
    stored(lib, cwd, 3, '2026-01-01T00:00:00.000Z')
    h = lib.open('s00001')
    h.title,h.updated = 'better',time.time()
    new = lib.new('s9', cwd)
    rows = lib.list(live=[h.row(), new.row()])['sessions']
    assert [r['sessionId'] for r in rows]==['s00001','s00002','s00000'] and rows[0]['title']=='better'

def test_another_program_is_seen_at_once(lib, cwd):
    other = Library(os.path.dirname(lib.root))
    for i in range(12):
        say(h := other.new(f's{i}', cwd), 'hi')
        assert lib.list()['sessions'][0]['sessionId']==f's{i}'
        h.set_title(f'title {i}')
        assert lib.list()['sessions'][0]['title']==f'title {i}'
        h.close()
        if i%3==2:
            other.delete(f's{i-1}')
            assert f's{i-1}' not in walk(lib)[0]
    os.unlink(os.path.join(lib.root, '.news'))
    assert len(walk(lib)[0])==8

def test_a_broken_meta_file_hides_no_session(lib, cwd):
    say(h := lib.new('s1', cwd, ['/more']), 'one')
    h.close()
    was = lib.list()
    assert was['sessions'][0]['additionalDirectories']==['/more']
    for b in (b'', b'\0'*99, b'[]', b'{"sessionId":"s2"}', b'{"sessionId":"s1","cwd":"x","updatedAt":"now"}'):
        Path(h.dir, 'meta.json').write_bytes(b)
        assert Library(os.path.dirname(lib.root)).list()==was

def test_C160_titles(lib, cwd):
    h,seen = lib.new('s1', cwd),[]
    h.on_title = seen.append
    t = h.prompt(typed('\x1b[31mFix\nthe \u202ebug\u202c '+'x'*10_000))
    assert t.startswith('Fix the bug xxx') and len(t)==80 and t.isprintable()
    h.end('end_turn')
    r = lib.list()['sessions'][0]
    assert r['title']==t and r['cwd']==cwd and r['updatedAt'].endswith('Z')
    assert h.set_title('Mine') and not h.set_title('The model says', by='model') and not h.set_title(' \n')
    h.close()
    assert lib.open('s1').title=='Mine' and seen==[t,'Mine']
    off = Library(os.path.dirname(lib.root), titles='off').new('s2', cwd)
    assert off.prompt(typed('x')) is None and 'title' not in off.row()
    cmd = lib.new('s3', cwd)
    assert cmd.prompt(typed('/help'), command=True) is None and cmd.prompt(typed('now'))=='now'

# -- deleted and forked

def test_delete_leaves_no_byte_and_touches_nothing_else(lib, cwd, tmp_path):
    at = Path(cwd, '.ramabana', 'attachments')
    at.mkdir(parents=True)
    (at/'a.png').write_bytes(b'TELLTALE')
    precious = tmp_path/'precious.txt'
    precious.write_text('x')
    (at/'link').symlink_to(precious)
    h = lib.new('s1', cwd)
    for p in (at/'a.png', at/'link', precious, at/'nope'): h.owns(str(p))
    h.prompt([dict(type='image', mimeType='image/png', data=base64.b64encode(b'TELLTALE').decode())])
    say(h, 'TELLTALE')
    h.close()
    assert lib.delete('s1') and lib.delete('s1') and lib.delete('../..')
    left = [p for p in tmp_path.rglob('*') if p.is_file() and b'TELLTALE' in p.read_bytes()]
    assert left==[] and precious.read_text()=='x' and lib.find('s1') is None
    with pytest.raises(NotFound): lib.open('s1')

def test_a_deletion_that_could_not_finish_is_finished_at_the_next_start(lib, cwd, monkeypatch):
    import shutil
    say(h := lib.new('s1', cwd), 'one')
    h.close()
    real = shutil.rmtree
    def stuck(p, *a, **k): raise OSError(errno.EBUSY, 'busy')
    monkeypatch.setattr(shutil, 'rmtree', stuck)
    assert lib.delete('s1') is False and lib.list()['sessions']==[] and lib.find('s1') is None
    monkeypatch.setattr(shutil, 'rmtree', real)
    assert Library(os.path.dirname(lib.root)).sweep() and list(Path(lib.root, '.trash').iterdir())==[]

def test_C148_an_unknown_session_is_not_found_and_makes_no_file(lib):
    for sid in ('nope', '', '..', 'a/b', '.trash', 'x'*999, None, 7, 'a\0b'):
        with pytest.raises(NotFound): lib.open(sid)
        assert lib.delete(sid)
    assert not os.path.exists(lib.root)

def test_a_fork_is_a_conversation_of_its_own(lib, cwd):
    h = lib.new('s1', cwd)
    h.prompt([dict(type='image', mimeType='image/png', data=base64.b64encode(PNG).decode())])
    h.messages += [user('', [PNG]), assistant([text('a picture')])]
    h.save(mid='m1')
    h.end('end_turn')
    say(h, 'two', mid='m2')
    cs,acts = begun(h, 'three')
    acts.start('run_shell', {}, id='c1')
    f = lib.fork('s1', 'f1')
    assert f.messages[:-1]==h.messages and f.messages[-1]['results'][0]['text']==INTERRUPTED and pair(f.messages)==f.messages
    f1,f2 = lib.fork('s1', 'f2', upto='m1'),lib.fork('s1', 'f3', upto=2)
    assert f1.messages==h.messages[:2] and f2.messages==h.messages[:4]
    say(f1, 'elsewhere')
    for bad in ('nope', 9, 10**9):
        with pytest.raises(InvalidParams): lib.fork('s1', 'f9', upto=bad)
    for new in ('s1', '../x', None):
        with pytest.raises(InvalidParams): lib.fork('s1', new)
    with pytest.raises(NotFound): lib.fork('nope', 'f9')
    h.end('cancelled')
    for o in (h, f, f1, f2): o.close()
    assert lib.delete('s1')
    assert lib.open('f2').messages[0]==user('', [PNG]) and sorted(walk(lib)[0])==['f1','f2','f3']

# -- shown again

def test_C146_the_replay_tells_the_whole_story_in_order(lib, cwd):
    h = lib.new('s1', cwd)
    blocks = [dict(type='text', text='mend'), dict(type='resource', resource=dict(uri='file:///a', text='context')), dict(type='image', mimeType='image/png', data=base64.b64encode(PNG).decode(), uri='file:///p.png')]
    h.prompt(blocks)
    cs = [call('c1', 'view_file', dict(path='a.py')), call('c2', 'edit_file', dict(path='a.py', old='1', new='2'))]
    h.messages += [user('mend\n\ncontext'), assistant([thinking('hm', 'seal'), text('I look.'), *cs], 'calls')]
    h.save(mid='m1')
    acts = Activity(h.act)
    acts.finish(acts.start('view_file', cs[0]['args'], id='c1', locations=[('/w/a.py', 3)]), 'x'*999, True)
    h.planned([dict(id='1', text='mend', status='active')])
    acts.finish(acts.start('edit_file', cs[1]['args'], id='c2', diff=('/w/a.py', '1\n', '2\n')), 'ERROR: no', False)
    h.messages += [results([result(cs[0], 'x'*999), result(cs[1], 'ERROR: no', False)]), {**user('NUDGE'), 'by':'agent'}, assistant([text('Done.')])]
    h.save(mid='m2')
    h.used(used=10, size=100, cost='1')
    h.end('end_turn')
    def check(evs):
        assert [e['type'] for e in evs]==['user','thought','text','card','plan','card','text','usage','title']
        assert evs[0]['blocks']==blocks and (evs[1]['mid'], evs[2]['mid'], evs[6]['mid'])==('m1t','m1','m2')
        a,b = evs[3]['card'],evs[5]['card']
        assert (a.state, a.title, a.detail, a.locations, a.args)==('complete', 'Read a.py', 'x'*999, [('/w/a.py', 3)], dict(path='a.py'))
        assert (b.state, b.diff, b.detail, b.terminal)==('failed', ('/w/a.py', '1\n', '2\n'), 'ERROR: no', None)
        assert evs[7]['used']==10
    check(list(h.replay()))
    h.close()
    h = lib.open('s1')
    check(list(h.replay()))
    check(list(h.replay()))
    assert h.plan==[dict(id='1', text='mend', status='active')] and h.ids=={'c1','c2'}

def test_a_replayed_card_can_be_drawn_like_a_live_one(lib, cwd):
    from ramabana_acp.editor import updates as up
    h = lib.new('s1', cwd)
    _,acts = begun(h, ids=('c1',))
    act = acts.finish(acts.start('run_shell', dict(command='make'), id='c1'), 'done', True)
    h.end('end_turn')
    assert up.started(next(e['card'] for e in h.replay() if e['type']=='card'))==up.started(act)

def test_a_command_and_its_reply_are_shown_and_not_sent(lib, cwd):
    h = lib.new('s1', cwd)
    h.prompt(typed('/help'), command=True)
    h.said('There is help.', 'm1')
    h.end('end_turn')
    h.close()
    h = lib.open('s1')
    assert h.messages==[] and [e['type'] for e in h.replay()]==['user','text']

def test_a_large_diff_keeps_its_changed_lines():
    a = [f'line {i}\n' for i in range(20_000)]
    b = a[:9_000]+['new\n']+a[9_001:15_000]+a[15_001:]
    _,old,new = lean(('/a', ''.join(a), ''.join(b)))
    assert old.startswith('line 8950\n') and old.endswith('line 15050\n') and 'new\n' in new and len(old)<80_000
    assert lean(('/a', None, 'x'*99_999))[2]=='x'*99_999
