"A path leads to a file in an open folder, or nowhere."
import subprocess
import os, re, socket, threading, unicodedata
from pathlib import Path
import pytest
from wire import poll
from ramabana_acp.core import Cancelled, InvalidParams, Refused, Token, ToolError
from ramabana_acp.workspace.host import Change, Host, Missing, WorkspaceHost
from ramabana_acp.workspace.text import Binary, Text, decode, edit

@pytest.fixture
def box(tmp_path):
    "A folder outside, a sibling with the same prefix, and the root, with links of every kind"
    for d in ('outside','root-evil','root/sub'): (tmp_path/d).mkdir(parents=True)
    (tmp_path/'outside'/'secret').write_text('S'); (tmp_path/'root-evil'/'s.txt').write_text('S')
    r = tmp_path/'root'
    (r/'out').symlink_to(tmp_path/'outside'); (r/'dang').symlink_to(tmp_path/'outside'/'new.txt'); (r/'in').symlink_to('sub')
    (r/'loop').symlink_to('loop'); (r/'a.txt').write_text('a\n')
    (tmp_path/'door').symlink_to('root')
    return tmp_path

@pytest.fixture(params=['root','door'])
def host(request, box): return WorkspaceHost([box/request.param])

def snapshot(d): return {p.relative_to(d).as_posix():p.read_bytes() for p in sorted(d.rglob('*')) if p.is_file()}

@pytest.mark.parametrize('path', ['../root-evil/s.txt', 'sub/../../root-evil/s.txt', '{box}/root-evil/n.txt', '/etc/passwd', '..', '/', 'in/../../outside/secret', '{box}/root/../outside/secret'])
def test_C175_out_of_the_root_by_name(host, box, path):
    path,was = path.format(box=box),snapshot(box)
    with pytest.raises(Refused, match='outside the open folders'): host.check(path)
    assert host.read(path) is None and host.text_at(path) is None
    for f in (lambda: host.load(path), lambda: host.write(path, 'x'), lambda: host.create(path, 'x'), lambda: host.update(path, lambda s: 'x'), lambda: host.walk(path), lambda: host.run_cmd('true', cwd=path)):
        with pytest.raises(Refused): f()
    assert snapshot(box)==was

def test_C175_home_is_not_expanded(host):
    for p in ('~/.ssh/id_rsa','~'):
        with pytest.raises(Refused, match='not expanded'): host.check(p)

@pytest.mark.parametrize('path,to', [('out/x.txt','outside/x.txt'), ('dang','outside/new.txt'), ('out/secret','outside/secret'), ('out','outside')])
def test_C176_out_of_the_root_by_link(host, box, path, to):
    was = snapshot(box/'outside')
    with pytest.raises(Refused, match=f'leads to {box}/{to}'): host.check(path)
    with pytest.raises(Refused): host.create(path, 'x')
    assert snapshot(box/'outside')==was and host.read(path) is None

def test_C176_a_link_inside_works(host, box):
    assert host.create('in/ok.txt', '3').path==box/'root'/'sub'/'ok.txt'
    assert (box/'root/sub/ok.txt').read_text()=='3' and host.read(str(box/'door'/'in'/'ok.txt'))=='3' and host.read(str(box/'root'/'in'/'ok.txt'))=='3'

def test_a_link_that_leads_to_itself_is_an_error_and_no_loop(host):
    with pytest.raises(ToolError): host.load('loop')
    with pytest.raises(ToolError): host.write('loop', 'x')

def test_a_root_that_is_a_link_is_spelled_as_the_caller_did(box):
    h = WorkspaceHost(box/'door')
    assert h.roots==[box/'root'] and h.spell(h.check('in/new.txt'))==box/'door'/'sub'/'new.txt' and h.rel(h.check('a.txt'))=='a.txt'

@pytest.mark.parametrize('root', ['/', None])
@pytest.mark.parametrize('path', ['/proc/self/environ', '/proc/thread-self/environ', '/dev/fd/0', '/dev/stdin', '/dev/null', '/sys/kernel', '/proc/../proc/self/environ'])
def test_C179_the_system_is_no_folder(tmp_path, root, path):
    (tmp_path/'env').symlink_to('/proc/self/environ')
    h = WorkspaceHost(root or tmp_path)
    for p in (path, str(tmp_path/'env')):
        with pytest.raises(Refused): h.load(p)
        assert h.read(p) is None
    with pytest.raises(Refused): h.add_root(os.path.dirname(path))

def test_pipes_and_sockets_are_refused_at_once(host, box):
    os.mkfifo(box/'root'/'pipe')
    (box/'root'/'pl').symlink_to('pipe')
    with socket.socket(socket.AF_UNIX) as s:
        cwd = os.open('.', os.O_RDONLY)
        try: os.chdir(box/'root'); s.bind('sock')
        finally: os.fchdir(cwd); os.close(cwd)
        for p in ('pipe','sock','pl'):
            for f in (host.load, lambda p: host.write(p, 'x'), host.data):
                with pytest.raises(Refused, match='not a file'): f(p)
    assert {'pipe','sock','pl'}.isdisjoint(p.name for p in host.walk())

@pytest.mark.parametrize('path', ['C:\\Users\\me\\x.txt', 'C:/Users/me/x.txt', '\\\\server\\share\\x'])
def test_C046_windows_paths_are_refused(host, box, path):
    was = snapshot(box)
    for f in (host.check, host.load, lambda p: host.create(p, 'y')):
        with pytest.raises(Refused, match='Windows path'): f(path)
    assert snapshot(box)==was

@pytest.mark.parametrize('path', ['a\0b', 'x\ud800'])
def test_strings_that_are_no_path_are_refused(host, path):
    with pytest.raises(Refused, match='no path'): host.check(path)
    assert host.read(path) is None and not host.credential(path)

@pytest.mark.parametrize('path', ['n'*300, 'a.txt/x', 'd/'*3000+'x'])
def test_impossible_names_are_tool_errors(host, path):
    for f in (host.load, lambda p: host.create(p, 'y')):
        with pytest.raises(ToolError): f(path)
    assert host.read(path) is None

@pytest.mark.parametrize('disk,asked', [('Abschätzung.txt','NFC'), ('Ordner ä/Datei ö.txt','NFC'), ('Shot\u202f1 PM.png','plain'), ('é.txt','NFD')])
def test_C101_a_name_in_two_unicode_forms_is_one_file(host, box, disk, asked):
    name = unicodedata.normalize('NFC' if asked=='NFD' else 'NFD', disk) if asked!='plain' else disk
    p = box/'root'/name
    p.parent.mkdir(exist_ok=True); p.write_text('X')
    other = disk.replace('\u202f',' ') if asked=='plain' else unicodedata.normalize(asked, disk)
    assert other!=name and host.check(other)==p and host.read(other)=='X'
    with pytest.raises(ToolError, match='was not read'): host.create(other, 'Y')
    host.update(other, lambda s: s+'!')
    assert p.read_text()=='X!' and len(list(p.parent.iterdir()))==(1 if p.parent!=box/'root' else len(list((box/'root').iterdir())))
    assert [q for q in (box/'root').rglob('*') if q.name==os.path.basename(other)]==[]

def test_C101_two_files_that_look_the_same_are_not_mixed_up(host, box):
    for f in ('NFC','NFD'): (box/'root'/unicodedata.normalize(f, 'éa.txt')).write_text(f)
    assert host.read(unicodedata.normalize('NFD', 'éa.txt'))=='NFD'
    (box/'root'/'b\u202fc').write_text(''); (box/'root'/'b\u00a0c').write_text('')
    with pytest.raises(Refused, match='could be any of 2'): host.check('b c')

@pytest.mark.parametrize('path', ['.env', 'sub/.env.local', '.ENV', '.env.production', 'link', 'in/.env.local', 'id_rsa', 'id_ed25519', 'server.pem', 'x.key', '.ssh/config', '.netrc', '.pypirc',
    '.npmrc', '.aws/credentials', '.aws/config', 'credentials', 'credentials.json', 'client-secret.json', 'secrets.yaml', '.git-credentials', '.docker/config.json', '.kube/config', 'plain.txt'])
def test_C178_files_that_hold_secrets(host, box, path):
    r = box/'root'
    (r/'.env').write_text('API_KEY=abc\n'); (r/'link').symlink_to('.env'); (r/'sub'/'.env.local').write_text('X=1\n')
    (r/'k.pem').write_text(''); (r/'plain.txt').symlink_to('k.pem')
    assert host.credential(path) and host.credential(str(box/'door'/path))

@pytest.mark.parametrize('path', ['.env.example', '.env.sample', 'sub/.env.template', 'a.txt', 'id_rsa.pub', '.ssh/known_hosts', 'environment.py', 'credentials.py', 'secrets/readme.md', 'tokenizer.json', 'monkey', '.envdir/x', 'venv'])
def test_C178_ordinary_files(host, box, path):
    (box/'root'/'venv').mkdir(); (box/'root'/'.env').mkdir()
    assert not host.credential(path) and not host.credential('.env') and not host.credential('.env/lib/a.py')

def test_C178_a_credential_in_another_unicode_form(host, box):
    (box/'root'/'.env').write_text('K=1'); (box/'root'/'a\u00a0b').symlink_to('.env')
    assert host.credential('a b') and not host.credential('a c')

def test_messages_show_control_characters_and_the_path_stays(host, box):
    name = 'a\x1b[2J\n\u202egpj.py'
    (box/'root'/name).write_bytes(b'\0')
    with pytest.raises(Binary) as e: host.load(name)
    assert '\x1b' not in str(e.value) and '\n' not in str(e.value) and '\u202e' not in str(e.value)
    assert host.check(name).name==name

# reading and writing

def test_R50_reading_and_writing_on_the_disk(host, box):
    assert (host.read('a.txt'), host.text_at('a.txt'), host.read('none'), host.text_at('none'))==('a\n', 'a\n', None, '')
    assert host.load('a.txt').raw==b'a\n' and host.write('n/m.txt', 'é')==box/'root'/'n'/'m.txt' and (box/'root/n/m.txt').read_bytes()=='é'.encode()
    assert host.run_cmd('')==(0,'') and host.run_cmd('  \n')==(0,'')
    with pytest.raises(ToolError, match='is a folder'): host.load('sub')
    with pytest.raises(Missing): host.load('none')
    with pytest.raises(ToolError): host.write('sub', 'x')
    with pytest.raises(ToolError): host.write('a.txt/b', 'x')

@pytest.mark.parametrize('raw', [b'\xef\xbb\xbfa=1\r\n', b'\xff\xfea\0=\x001\0', b'n\xe4me\na=1', b'x\r\na=1\ny\r'])
def test_law7_encoding_bom_line_ends_and_mode_stay(host, box, raw):
    p = box/'root'/'f'
    p.write_bytes(raw); p.chmod(0o751)
    c = host.update('f', lambda s: edit(s, [('a=1','a=2')])[0])
    assert p.read_bytes()==raw.replace(b'1', b'2') and p.stat().st_mode&0o7777==0o751 and c.stored==c.new!=c.old
    assert not [q for q in p.parent.iterdir() if q.name.endswith('.tmp')]
    host.write('f', 'b')
    assert host.load('f').text=='b' and (host.load('f').enc, host.load('f').bom)==(decode(raw).enc if raw[0]>127 else 'utf-8', decode(raw).bom)

def test_C100_a_binary_file_is_neither_read_nor_written(host, box):
    raw = b'\x00\x01\xff\xd8abc\x00'
    (box/'root'/'b.bin').write_bytes(raw)
    for f in (host.load, lambda p: host.update(p, lambda s: s), lambda p: host.create(p, 'x'), lambda p: host.write(p, 'x')):
        with pytest.raises(Binary, match='b.bin is a binary file of 8 bytes'): f('b.bin')
    assert (box/'root'/'b.bin').read_bytes()==raw==host.data('b.bin')

def test_C095_a_whole_file_is_replaced_only_as_it_was_seen(host, box):
    p = box/'root'/'a.txt'
    with pytest.raises(ToolError, match='was not read'): host.create('a.txt', 'mine')
    host.note_seen('a.txt', host.read('a.txt'))
    os.utime(p, (1,1))
    assert host.create('in/../a.txt', 'mine').old=='a\n'
    assert host.create('a.txt', 'mine too').old=='mine' and host.seen('a.txt') and host.seen('a.txt', 'mine too') and not host.seen('a.txt', 'x')
    p.write_text('v2 user\n')
    with pytest.raises(ToolError, match='changed since it was read'): host.create('a.txt', 'v1 mine\n')
    assert p.read_text()=='v2 user\n'
    assert not WorkspaceHost(box/'root').seen('a.txt')

def test_a_replaced_file_keeps_its_crlf(host, box):
    (box/'root'/'w').write_bytes(b'a\r\nb\r\n')
    host.note_seen('w', 'a\nb\n')
    host.create('w', 'x\ny\n')
    assert (box/'root'/'w').read_bytes()==b'x\r\ny\r\n'

def test_law7_a_change_that_was_made_meanwhile_is_not_lost(host, box):
    t = host.load('a.txt')
    (box/'root'/'a.txt').write_text('b\n')
    with pytest.raises(ToolError, match='changed on the disk'): host.write('a.txt', 'c\n', like=t)
    def late(s): (box/'root'/'a.txt').unlink(); return s+'x'
    with pytest.raises(ToolError, match='changed on the disk'): host.update('a.txt', late)
    assert not (box/'root'/'a.txt').exists()

def test_C092_two_edits_through_two_spellings(box):
    a,b,p,go,errs = WorkspaceHost(box/'root'),WorkspaceHost(box/'door'),box/'root'/'sub'/'n.txt',threading.Barrier(2),[]
    def run(h, path, old, new):
        go.wait()
        try: h.update(path, lambda s: edit(s, [(old,new)])[0])
        except ToolError as e: errs.append(e)
    for _ in range(50):
        p.write_bytes(b'50\n75\n')
        ts = [threading.Thread(target=run, args=x) for x in ((a,'sub/n.txt','50','FIFTY'), (b,'./in/n.txt','75','SEVENTYFIVE'))]
        for t in ts: t.start()
        for t in ts: t.join()
        assert p.read_bytes()==b'FIFTY\nSEVENTYFIVE\n' and not errs

def test_the_lock_is_one_for_all_spellings_and_may_be_taken_again(box):
    a,b,got = WorkspaceHost(box/'root'),WorkspaceHost(box/'door'),[]
    with a.locked('sub/x'), a.locked('in/X'):
        t = threading.Thread(target=lambda: got.append(b.write('sub/x', 'b')), daemon=True); t.start()
        t.join(.05)
        assert not got
    t.join(20)
    assert got

def test_a_failed_write_says_why_and_leaves_the_file(host, box, monkeypatch):
    import ramabana_acp.workspace.host as m
    def full(*a, **k): raise OSError(28, 'No space left on device')
    monkeypatch.setattr(m, 'write_atomic', full)
    with pytest.raises(ToolError, match='a.txt: No space left'): host.write('a.txt', 'x')
    assert (box/'root'/'a.txt').read_text()=='a\n'

def test_a_read_only_file_stays(host, box, monkeypatch):
    monkeypatch.setattr(os, 'access', lambda p, m: False)
    with pytest.raises(ToolError, match='read-only'): host.write('a.txt', 'x')
    assert (box/'root'/'a.txt').read_text()=='a\n'

def test_a_file_too_large_is_told(host):
    with pytest.raises(ToolError, match='too large: 2 bytes'): host.data('a.txt', limit=1)

# a host that reads and writes through an editor

class Buffers(WorkspaceHost):
    "A host over an editor that has buffers, may decline to read, may refuse to write, and formats on saving"
    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.bufs,self.wrote,self.asked,self.declines,self.refuses,self.fmt = {},{},[],False,False,lambda s: s
    def fetch(self, p):
        if self.plain(p):
            self.asked.append(p)
            if p.name in self.bufs and not self.declines: return Text(self.bufs[p.name])
        return super().fetch(p)
    def store(self, p, text, like=None):
        if not self.plain(p): return super().store(p, text, like)
        if self.refuses: raise ToolError('buffer is read-only')
        self.wrote[p.name] = text
        self.bufs[p.name] = self.fmt(text)
        return self.bufs[p.name]

@pytest.fixture
def ed(box): return Buffers(box/'root')

def test_R51_R57_every_reader_sees_the_buffer(ed, box):
    ed.bufs['a.txt'] = 'unsaved\n'
    assert ed.read('a.txt')==ed.text_at('a.txt')==ed.load('in/../a.txt').text=='unsaved\n'
    c = ed.update('a.txt', lambda s: edit(s, [('unsaved','edited')])[0])
    assert c==(box/'root'/'a.txt', 'unsaved\n', 'edited\n', 'edited\n') and ed.wrote=={'a.txt':'edited\n'}
    assert (box/'root'/'a.txt').read_text()=='a\n'

def test_R52_R56_law6_a_read_falls_back_a_write_does_not(ed, box):
    ed.declines = ed.refuses = True
    assert ed.read('a.txt')=='a\n'
    for f in (lambda: ed.write('a.txt', 'x'), lambda: ed.update('a.txt', lambda s: 'x'), lambda: ed.create('new.txt', 'x')):
        with pytest.raises(ToolError, match='buffer is read-only'): f()
    assert (box/'root'/'a.txt').read_text()=='a\n' and not (box/'root'/'new.txt').exists()

def test_R53_outside_is_refused_without_asking(ed):
    assert ed.read('/etc/passwd') is None
    with pytest.raises(Refused): ed.write('out/x', 'x')
    assert not ed.asked and not ed.wrote

def test_C050_a_new_file_in_an_editor(ed):
    ed.declines = True
    assert ed.create('sub/new.py', 'x\n').old is None and ed.wrote=={'new.py':'x\n'}

def test_C055_what_the_editor_stored_is_told(ed):
    ed.fmt = lambda s: s.replace('1',' 1 ')
    ed.bufs['a.txt'] = 'x=0\n'
    c = ed.update('a.txt', lambda s: edit(s, [('x=0','x=1')])[0])
    assert (c.new, c.stored)==('x=1\n', 'x= 1 \n')
    assert ed.update('a.txt', lambda s: edit(s, [('x= 1 ','x = 2')])[0]).old=='x= 1 \n'

@pytest.mark.parametrize('raw', [b'caf\xe9 = 1\n', b'\xef\xbb\xbfa = 1\n', b'\xff\xfe=\0 \x001\0', b'a = 1\r\nb\n'])
def test_C056_what_text_cannot_carry_stays_local(ed, box, raw):
    (box/'root'/'l.txt').write_bytes(raw)
    ed.bufs['l.txt'] = 'caf\ufffd = 1\n'
    ed.update('l.txt', lambda s: edit(s, [('= 1','= 2')])[0])
    assert (box/'root'/'l.txt').read_bytes()==raw.replace(b'1', b'2') and not ed.wrote and not ed.asked

def test_C062_a_buffer_without_cr_written_locally_gets_it_back(ed, box):
    (box/'root'/'w').write_bytes(b'a\r\nb\r\n')
    ed.bufs['w'] = 'a\nb\n'
    t = ed.load('w')
    assert t.raw is None
    WorkspaceHost.store(ed, ed.check('w'), 'a\nc\n', t)
    assert (box/'root'/'w').read_bytes()==b'a\r\nc\r\n'

# walking, opening, running

def test_walk_is_sorted_and_skips_what_git_ignores(box):
    r = box/'root'
    for n in ('z.py', 'm/z.log', 'm/keep.log', 'm/deep/x.log', 'dist/a', 'src/dist/b', 'src/gen/a.py', 'src/gen/b.txt', '__pycache__/c', '.venv/d', 'sub/.git/HEAD', 'sub/#x', 'sub/!y', 'ä.py'):
        (r/n).parent.mkdir(parents=True, exist_ok=True); (r/n).write_text('')
    (r/'.gitignore').write_text('# a comment\n*.log\n/dist\nsrc/gen/*.txt\n!\n\\#x\n'); (r/'m'/'.gitignore').write_text('!keep.log\n/deep/\n')
    h = WorkspaceHost(box/'door')
    (r/'alias').symlink_to('z.py'); (r/'away').symlink_to(box/'outside'/'secret')
    want = ['.gitignore','a.txt','alias','m/.gitignore','m/keep.log','src/dist/b','src/gen/a.py','sub/!y','z.py','ä.py']
    assert [p.relative_to(r).as_posix() for p in h.walk()]==want
    assert [p.name for p in h.walk('in')]==['!y'] and [p.name for p in h.walk('dist')]==['a'] and [p.name for p in h.walk('m/z.log')]==['z.log']

def test_a_link_that_leads_to_itself_stops_no_search(host, box):
    (box/'root'/'self').symlink_to('self')
    assert 'a.txt' in [p.name for p in host.walk(out=[])]

def test_walk_goes_deep_stops_on_cancel_and_names_what_is_missing(host, box):
    with pytest.raises(Missing): host.walk('nowhere')
    host.tok = Token(); host.tok.cancel()
    with pytest.raises(Cancelled): list(host.walk())
    host.tok = None
    cwd = os.open('.', os.O_RDONLY)
    try:
        os.chdir(box/'root'/'sub')
        for _ in range(1200): os.mkdir('d'); os.chdir('d')
        assert [p.name for p in host.walk()]==['a.txt']
    finally:
        os.fchdir(cwd); os.close(cwd)
        subprocess.run(['rm','-rf',box/'root'/'sub'/'d'], check=True)   # too deep for pytest's own cleaning

def test_nested_roots_are_walked_once(box):
    h = WorkspaceHost([box/'root'/'sub', box/'root', box/'door'])
    (box/'root'/'sub'/'b.txt').write_text('')
    assert len(h.roots)==2 and [p.name for p in h.walk()]==['a.txt','b.txt'] and h.spell(box/'root'/'sub'/'x')==box/'root'/'sub'/'x'

@pytest.mark.parametrize('roots', ['nowhere', 'root/a.txt', []])
def test_a_root_must_be_a_folder(box, roots):
    with pytest.raises(InvalidParams): WorkspaceHost(box/roots if roots else roots)

def test_add_root_opens_a_folder_and_only_that(box):
    h = WorkspaceHost(box/'root')
    for p in ('nowhere','a.txt','../root/a.txt'):
        with pytest.raises(ToolError, match='is not a folder'): h.add_root(p)
    assert h.add_root('out')==box/'outside' and h.added_roots==[box/'outside'] and h.read('out/secret')=='S' and h.read('../outside/secret')=='S'
    with pytest.raises(Refused): h.check('../root-evil/s.txt')
    assert WorkspaceHost(box/'root').roots==[box/'root']

def test_the_long_output_of_a_command_can_be_read_and_nothing_beside_it(host):
    code,out = host.run_cmd('seq 200000')
    spill = re.search(r'(/\S+out_\S+\.txt)', out)[1]
    assert host.read(spill)==''.join(f'{i}\n' for i in range(1, 200001))
    for f in (lambda: host.write(spill, 'x'), lambda: host.load(os.path.dirname(spill)), lambda: host.load(spill+'x')):
        with pytest.raises(Refused): f()

def test_what_a_command_leaves_in_the_background_is_told(host):
    code,out = host.run_cmd('sleep 90 >/dev/null 2>&1 & echo started')
    assert code==0 and out=='started\n[processes left in the background, and killed: 1]'

def test_a_command_runs_in_a_checked_folder_and_the_process_stays_where_it_is(host, box):
    was = os.getcwd()
    code,out = host.run_cmd('pwd -P; echo $((1+1)); exit 3', cwd='in')
    assert code==3 and out.split()[:2]==[str(box/'root'/'sub'), '2'] and os.getcwd()==was

def test_a_command_is_cancelled_with_the_turn(host):
    host.tok = Token()
    threading.Thread(target=lambda: (poll((host.roots[0]/'up').exists), host.tok.cancel()), daemon=True).start()
    with pytest.raises(Cancelled): host.run_cmd('touch up; sleep 90')
