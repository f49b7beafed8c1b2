"What a damaged, foreign or half-readable store does to a person: as little as possible, and never in silence."
import base64, copy, json, os, random, shutil, sys, tempfile, threading
from pathlib import Path
import pytest
from ramabana_acp.core import jdumps
from ramabana_acp.agent.agent import Agent
from ramabana_acp.agent.journal import NotSaved
from ramabana_acp.agent.library import Library, row_of
from ramabana_acp.agent.reopen import reopen
from ramabana_acp.editor import updates as up
from ramabana_acp.models.claude import claude_body
from ramabana_acp.models.messages import assistant, call, pair, result, results, text, thinking, user
from ramabana_acp.models.offline import ScriptedProvider
from ramabana_acp.models.openai import chat_body
from ramabana_acp.models.specs import resolve
from ramabana_acp.workspace.activity import Activity
from ramabana_acp.workspace.host import WorkspaceHost
from ramabana_acp.testing.models import FakeModel
import test_sessions
from test_sessions import error, image, listed
from wire import BARE, OK, PYTHON, UPDATES, Again, Models, Remote, agent, bare, bare_process, invalid, models, poll, tool # fixtures

PNG = base64.b64decode(test_sessions.PNG)
def said(s): return [dict(type='text', text=s)]
def store(a): return a.home/'.state/ramabana-acp/sessions'
def where(a, sid): return next(store(a).glob(f'*/{sid}'))
def attachments(root): return {p.name for p in (root/'.ramabana/attachments').glob('*.png')}

# ---- records of every shape

def conversation(lib, cwd):
    "A conversation in which each kind of record occurs; its records"
    h = lib.new('s1', cwd)
    h.setting(model='demo', effort='high')
    for t in range(3):
        h.prompt([*said(f'go {t}'), dict(type='resource_link', uri='file:///a', name='a'), image()])
        cs = [call(f'c{t}{i}', 'run_shell', dict(command='make')) for i in range(2)]
        h.messages += [user(f'go {t}', [PNG]), assistant([thinking('hm', 'seal', kind='x'), text('I look'), *cs], 'calls')]
        h.save(mid=f'm_{t}')
        acts,rs = Activity(h.act),[]
        for c in cs:
            act = acts.start('run_shell', c['args'], id=c['id'])
            act.diff,act.locations = ('/a', 'x\n', 'y\n'),[('/a', 3)]
            acts.finish(act, 'done', True)
            rs.append(result(c, 'done'))
            h.save(part=rs)
        h.planned([dict(id='1', text='x', status='active')])
        h.used(used=10, size=100, cost='0.5', steps=1, calls=2, tokens=3, use=dict(input=1, output=2))
        h.messages += [results(rs), assistant([text('Done.')])]
        h.save(mid=f'n_{t}')
        h.said('an aside', 'q')
        h.end('end_turn', use=dict(input=1, output=2), seen={'/a':'abcd'})
    h.compacted('k1', 'a summary', h.messages)
    h.owns(f'{cwd}/.ramabana/attachments/1.png')
    h.close()
    return [json.loads(l) for l in Path(h.path).read_bytes().splitlines()]

ODD = [None, True, 0, -1, 5, 10**30, 1e400, float('nan'), '', 'x', '\ud800', 'a\0b', '../../x', [], {}, [[]], {'a':1}, [None], [{}], 'x'*5000, -5.5, ['a'], {'type':'text'}, {'type':'text','text':5}]

def places(o, at=()):
    "The path of each value in `o`"
    if at: yield at
    for k in o if isinstance(o, dict) else range(len(o)) if isinstance(o, list) else (): yield from places(o[k], (*at, k))

def put(o, at, v):
    o = copy.copy(o)
    if at[1:]: o[at[0]] = put(o[at[0]], at[1:], v)
    elif v is put: del o[at[0]]
    else: o[at[0]] = v
    return o

def damaged(recs, rnd):
    "`recs` with a few lines lost, doubled, out of order, or with other values in them"
    recs = list(recs)
    for _ in range(rnd.choice((1,1,2,3))):
        k,w = rnd.randrange(len(recs)),rnd.random()
        if w<.1: del recs[k]
        elif w<.2: recs.insert(rnd.randrange(len(recs)), recs[k])
        elif w<.25: recs.append(recs.pop(k))
        elif ps := list(places(recs[k])): recs[k] = put(recs[k], rnd.choice(ps), put if w<.4 else rnd.choice(ODD))
    return recs

def survives(lib, cwd, recs):
    "Whatever is in the journal, it can be listed, shown, sent and gone on with"
    dir = Path(lib.root)/'x'/'t1'
    shutil.rmtree(dir, ignore_errors=True); dir.mkdir(parents=True)
    (dir/'transcript.jsonl').write_bytes(b''.join(json.dumps(r).encode()+b'\n' for r in recs))
    if row := row_of(dir): assert not invalid('SessionInfo', json.loads(jdumps(row))) and os.path.isabs(row['cwd']), row
    assert len(lib.list()['sessions'])==1+(row is not None)
    h = reopen(dir)
    try:
        for o in [u for e in h.replay() for u in up.replayed(e, True)]: assert not invalid(UPDATES[o['sessionUpdate']], json.loads(jdumps(o))), o
        for f,m in ((claude_body, 'anthropic/claude-opus-5'), (chat_body, 'openai/gpt-6-sol')): json.dumps(f(resolve(m), h.messages))
        ag = Agent(WorkspaceHost([cwd]), model='demo', provider=ScriptedProvider([[dict(text='well')]]), store=h)
        assert ag.ask('on')=='well' and ag.stop_reason=='end_turn' and ag.command('/cost')
    finally: h.close()

@pytest.mark.parametrize('n', [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 15))])
def test_no_damage_of_any_record_keeps_a_conversation_from_being_listed_shown_and_gone_on_with(n, tmp_path):
    cwd = str(tmp_path/'work')
    os.makedirs(cwd)
    lib,rnd = Library(tmp_path/'state'),random.Random(n)
    recs = conversation(lib, cwd)
    for _ in range(50):
        bad = damaged(recs, rnd)
        try: survives(lib, cwd, bad)
        except Exception as e: raise AssertionError(f'{type(e).__name__}: {e}; in {[r for r in bad if r not in recs]}') from e

@pytest.mark.parametrize('block', [dict(type='resource_link', uri='file:///x'), dict(type='text', text='x', annotations=5, _meta=7), dict(type='resource', resource={}),
    dict(type='resource', resource=dict(uri=5, text='x')), {k:v for k,v in image().items() if k!='mimeType'}], ids=['nameless','odd hints','empty','odd uri','typeless'])
def test_a_block_that_lacks_what_the_protocol_requires_is_replayed_with_it(bare, block):
    s = bare.session([OK])
    s.prompt([*said('see'), block])
    s.close()
    assert [u['sessionUpdate'] for u in Again(bare, s.sid, s.root).told][:2]==['user_message_chunk']*2 # `verify` holds both against the schema

# ---- the list

def test_one_broken_conversation_hides_no_other(bare):
    a,s = bare,bare.session([OK])
    s.prompt('good')
    (x := store(a)/'loop').symlink_to(x)
    (store(a)/'file').write_text('x')
    for n in ('..bad','empty','with space'): (store(a)/'odd-0'/n).mkdir(parents=True)
    (bad := store(a)/'odd-0/bad').mkdir()
    (bad/'transcript.jsonl').write_text('{"k":"prompt","blocks":[{"type":"text","text":"x"}]}\n{"k":"end","use":{"input":1e999}}\n{"k":"head","id":"bad","cwd":"x","roots":5}\n')
    try: assert s.sid in listed(a) and 'bad' in listed(a)
    finally: x.unlink(); shutil.rmtree(store(a)/'odd-0'); (store(a)/'file').unlink()

@pytest.mark.parametrize('odd', [dict(title=5), dict(title='a\n\x1b[31m'*5000), dict(additionalDirectories='x'), dict(updatedAt=5), dict(cwd='here'), dict(sessionId='other')], ids=str)
def test_a_meta_file_with_odd_values_gives_no_odd_row(bare, odd):
    s = bare.session([OK])
    s.prompt('a good title')
    s.close()
    p = where(bare, s.sid)/'meta.json'
    p.write_text(json.dumps(json.loads(p.read_text())|odd))
    store(bare).joinpath('.news').unlink(missing_ok=True) # as for a process that begins now
    row = next(r for r in bare.request('session/list', dict(cwd=str(s.root)))['sessions'] if r['sessionId']==s.sid)
    assert row['cwd']==str(s.root) and len(row['title'])<=80 and row['title'].isprintable(), row

def test_a_journal_that_has_lost_its_head_knows_its_folder_again(bare):
    s = bare.session([OK])
    s.prompt('go')
    s.close()
    p = where(bare, s.sid)/'transcript.jsonl'
    p.write_bytes(p.read_bytes().partition(b'\n')[2])
    (p.parent/'meta.json').unlink()
    g = Again(bare, s.sid, s.root)
    assert g.told and listed(bare, cwd=str(s.root))==[s.sid] and bare.request('session/list', dict(cwd=str(s.root)))['sessions'][0]['cwd']==str(s.root)

def test_what_nobody_can_read_any_more_is_an_error_that_says_where_it_is(bare):
    s = bare.session([OK])
    s.prompt('go')
    s.close()
    p = where(bare, s.sid)/'transcript.jsonl'
    p.write_bytes(p.read_bytes().decode().encode('utf-16'))
    e = error(bare, 'session/load', sessionId=s.sid, cwd=str(s.root), mcpServers=[])
    assert e.code==-32002 and str(p.parent) in str(e) and 'can be read' in str(e)
    bare.request('session/delete', dict(sessionId=s.sid))
    assert not p.parent.exists()

def test_an_unknown_id_never_opens_a_file_of_the_folder_the_agent_was_started_in(tmp_path):
    (here := tmp_path/'here').mkdir()
    (data := here/'transcript.jsonl').write_text('{"mine": 1}\n{"k":"prompt","blocks":[]}\n')
    with agent('--model', 'demo', cwd=here, **BARE) as a:
        for m in ('load','resume','fork'): assert error(a, f'session/{m}', sessionId='nosuch', cwd=str(here), mcpServers=[]).code==-32002
        a.request('session/delete', dict(sessionId='nosuch'))
    assert os.listdir(here)==['transcript.jsonl'] and data.read_text().startswith('{"mine": 1}\n{')

# ---- folders that somebody else made

NOBODY = 65534
@pytest.fixture
def nobody():
    "An agent that runs as a person without rights, and a function that gives files to that person"
    if os.geteuid() or sys.platform!='linux' or not shutil.which('setpriv'): pytest.skip('needs root on Linux')
    def give(p):
        for d,ds,fs in os.walk(p):
            for n in ('', *ds, *fs): os.lchown(os.path.join(d, n), NOBODY, NOBODY)
    home = Path(tempfile.mkdtemp(prefix='nobody-')).resolve() # not below pytest's own folder, which is closed again and again
    (home/'ws').mkdir()
    give(home)
    with Models() as m, agent(cmd=['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups', *PYTHON], home=home, models=m, **BARE) as a:
        def kept(*scripts):
            (root := home/f'ws/p{a.n}').mkdir()
            give(root)
            s = a.session(scripts or [OK]*3, root=root)
            s.prompt(f'about {root.name}')
            s.close()
            return s
        yield a,give,kept
    shutil.rmtree(home, ignore_errors=True)

def test_a_folder_that_cannot_be_read_hides_its_own_conversations_and_deleting_one_is_no_false_promise(nobody):
    a,give,kept = nobody
    s,t = kept(),kept()
    os.chown(d := where(a, s.sid).parent, 0, 0)
    try:
        assert listed(a)==[t.sid]
        for m in ('load','delete'):
            e = error(a, f'session/{m}', sessionId=s.sid, cwd=str(s.root), mcpServers=[])
            assert e.code==-32603 and 'Permission denied' in str(e) and str(d) in str(e), e
    finally: give(d)
    assert listed(a)==[t.sid,s.sid]
    a.request('session/delete', dict(sessionId=s.sid))
    assert listed(a)==[t.sid]

@pytest.mark.parametrize('what', ['transcript.jsonl', ''], ids=['transcript','folder'])
def test_a_conversation_that_root_has_written_is_an_error_that_names_the_file(nobody, what):
    a,give,kept = nobody
    s = kept()
    os.chown(d := where(a, s.sid)/what, 0, 0)
    try: e = error(a, 'session/load', sessionId=s.sid, cwd=str(s.root), mcpServers=[])
    finally: give(d.parent)
    assert e.code==-32603 and 'Permission denied' in str(e) and str(d) in str(e)
    assert Again(a, s.sid, s.root).stop()=='end_turn'

def test_a_conversation_that_cannot_be_deleted_is_told_and_stays_whole(nobody):
    a,give,kept = nobody
    s = kept()
    (d := where(a, s.sid).parent).chmod(0o500)
    try: e = error(a, 'session/delete', sessionId=s.sid)
    finally: d.chmod(0o700)
    assert 'Permission denied' in str(e) and listed(a)==[s.sid] and Again(a, s.sid, s.root).stop()=='end_turn'

# ---- links

def test_a_conversation_that_was_moved_to_another_disk_and_linked_is_deleted_to_the_last_byte(bare, tmp_path):
    s = bare.session([OK])
    s.prompt([*said('look'), image()])
    s.close()
    d = where(bare, s.sid)
    shutil.move(d, tmp_path/'moved')
    d.symlink_to(tmp_path/'moved')
    (tmp_path/'moved/mine.txt').write_text('not of the conversation')
    assert s.sid in listed(bare, cwd=str(s.root))
    bare.request('session/delete', dict(sessionId=s.sid))
    assert os.listdir(tmp_path/'moved')==['mine.txt'] and not os.path.lexists(d) and os.listdir(store(bare)/'.trash')==[] and not attachments(s.root)

def test_a_conversation_that_was_copied_by_hand_is_deleted_with_its_copy(bare):
    s = bare.session([OK])
    s.prompt('go')
    s.close()
    shutil.copytree(where(bare, s.sid), store(bare)/'copied-0'/s.sid)
    bare.request('session/delete', dict(sessionId=s.sid))
    assert not list(store(bare).glob(f'*/{s.sid}')) and s.sid not in listed(bare)

def test_nothing_is_attached_through_a_link_where_it_could_not_be_found_again(bare):
    s = bare.session([OK])
    (s.root/'elsewhere').mkdir()
    (s.root/'.ramabana').symlink_to(s.root/'elsewhere')
    assert s.stop([*said('look'), image()])=='end_turn'
    assert not list((s.root/'elsewhere').rglob('*')) and 'is the file' not in s.heard()

# ---- attachments

def test_a_picture_of_two_conversations_goes_with_the_second(bare):
    s,t = bare.session([OK]),None
    s.prompt([*said('look'), image()])
    t = bare.session([OK], root=s.root)
    t.prompt([*said('look'), image()])
    assert len(attachments(s.root))==1
    bare.request('session/delete', dict(sessionId=s.sid))
    assert len(attachments(s.root))==1 and f'.ramabana/attachments/{[*attachments(s.root)][0]}' in t.heard()
    assert [oct(p.stat().st_mode)[-3:] for p in (s.root/'.ramabana/attachments', *(s.root/'.ramabana/attachments').glob('*.png'))]==['700','600']
    bare.request('session/delete', dict(sessionId=t.sid))
    assert not attachments(s.root)

def test_a_fork_keeps_the_pictures_of_its_past_and_takes_them_with_it(bare):
    s = bare.session([OK])
    s.prompt([*said('look'), image()])
    f = bare.request('session/fork', dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[]))['sessionId']
    bare.request('session/delete', dict(sessionId=s.sid))
    assert len(attachments(s.root))==1
    bare.request('session/delete', dict(sessionId=f))
    assert not attachments(s.root)

def test_a_folder_that_is_gone_is_not_made_again_for_an_attachment(bare):
    s = bare.session([OK, OK])
    s.prompt('go')
    shutil.rmtree(s.root)
    assert s.stop([*said('look'), image()])=='end_turn' and not s.root.exists()

# ---- forks and folders

def test_a_fork_can_be_made_at_every_message_that_a_person_was_shown(bare):
    s = bare.session([[dict(text='I look'), tool('ls', 'f1', path='.')], [dict(think='hm'), dict(text='There.')], OK])
    for p in ('one','/help','two'): s.prompt(p)
    s.close()
    shown = [u for u in Again(bare, s.sid, s.root).told if u.get('messageId')]
    for u in shown:
        f = bare.request('session/fork', dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[], messageId=u['messageId']))['sessionId']
        bare.request('session/close', dict(sessionId=f))
        got = [o['messageId'] for o in Again(bare, f, s.root).told if o.get('messageId')]
        last = max(k for k,o in enumerate(shown) if o['messageId'].removesuffix('t')==u['messageId'].removesuffix('t'))
        assert got==[o['messageId'] for o in shown[:last+1]], (u['messageId'], got)
    for bad in ('u_0','u_99','u_','m_nosuch',''):
        assert error(bare, 'session/fork', sessionId=s.sid, cwd=str(s.root), mcpServers=[], messageId=bad).code==-32602

def test_a_fork_into_another_folder_is_about_that_folder(bare, tmp_path):
    s = bare.session([OK])
    s.prompt('go')
    f = bare.request('session/fork', dict(sessionId=s.sid, cwd=str(tmp_path), mcpServers=[]))['sessionId']
    bare.request('session/close', dict(sessionId=f))
    assert listed(bare, cwd=str(tmp_path))==[f] and f not in listed(bare, cwd=str(s.root))
    assert Again(bare, f, tmp_path).told

def test_a_conversation_whose_folder_was_renamed_is_in_the_list_of_the_new_one(bare):
    s = bare.session([OK])
    s.prompt('go')
    s.close()
    new = s.root.rename(s.root.with_name('renamed'))
    bare.models.add(new, [OK])
    g = Again(bare, s.sid, new)
    assert g.told and listed(bare, cwd=str(new))==[s.sid]
    assert g.stop()=='end_turn'
    g.close()
    assert listed(bare, cwd=str(new))==[s.sid] and Again(bare, s.sid, new).told

# ---- signing in

def test_asking_for_the_demo_twice_is_asking_for_it_once():
    with agent(**BARE) as a:
        assert [a.request('authenticate', dict(methodId='demo')) for _ in range(2)]==[{}, {}] and a.new(a.home)

def test_settings_that_cannot_be_read_hide_no_conversation_and_are_named_where_one_begins(tmp_path):
    kw = dict(home=tmp_path, **BARE)
    with agent('--model', 'demo', **kw) as a:
        s = a.session(root=tmp_path/'work')
        s.prompt('/help')
    (tmp_path/'.config/ramabana-acp').mkdir(parents=True)
    (tmp_path/'.config/ramabana-acp/config.toml').write_text('model = ')
    with agent(**kw) as a:
        assert listed(a)==[s.sid]
        for m,p in (('session/new', dict(cwd=str(s.root), mcpServers=[])), ('authenticate', dict(methodId='demo'))):
            e = error(a, m, **p)
            assert e.code==-32603 and 'config.toml' in str(e), e
        a.request('session/delete', dict(sessionId=s.sid))
        assert not listed(a)

def test_a_command_that_starts_while_a_conversation_is_closed_keeps_no_lock_on_it(tmp_path):
    lib = Library(tmp_path/'state')
    (h := lib.new('s1', str(tmp_path))).prompt(said('go'))
    copy = os.dup(h.journal.lock) # what a child has between its fork and its exec
    h.close()
    lib.open('s1').close()
    copy2 = os.dup((f := lib.fork('s1', 's2')).journal.lock)
    f.close()
    assert lib.delete('s1') and lib.delete('s2')
    os.close(copy), os.close(copy2)

# ---- titles

@pytest.mark.parametrize('reply,title', [([dict(text='"Fix\n\x1b[31m the parser". ')], 'Fix the parser'), pytest.param([dict(http=401, body='no')], 'the first prompt', marks=pytest.mark.slow),
    pytest.param([dict(think='hm'), dict(text='**Parser**')], 'Parser', marks=pytest.mark.slow)], ids=['said','refused','marked'])
def test_a_model_names_a_conversation_after_its_first_turn_where_the_settings_say_so(reply, title, tmp_path):
    (cfg := tmp_path/'.config/ramabana-acp').mkdir(parents=True)
    (cfg/'config.toml').write_text('titles = "model"\n')
    with FakeModel([OK, reply, OK]) as m, agent('--model', 'openai/fake-model', home=tmp_path, env=dict(OPENAI_BASE_URL=f'{m.base}/v1', OPENAI_API_KEY='sk-0123456789abcdefgh'), **BARE) as a:
        s = a.session()
        s.prompt('/help') # is no turn, and has nothing to be named after
        s.prompt('the first prompt')
        poll(lambda: len(m.requests)==2 and a.request('session/list', {})['sessions'][0]['title']==title)
        assert 'the first prompt' in str(m.requests[1].body)
        s.prompt('a second prompt')
        s.close()
        assert len(m.requests)==3, 'it is named once'
        assert [u['title'] for u in Again(a, s.sid, s.root).told if u['sessionUpdate']=='session_info_update']==[title]

def test_a_full_disk_makes_no_half_fork_and_the_error_says_what_was_not_saved(tmp_path):
    lib = Library(tmp_path/'state')
    h = lib.new('s1', str(tmp_path))
    h.prompt(said('go'))
    h.end('end_turn')
    lib.disk.write = lambda fd, data, name: (_ for _ in ()).throw(OSError(28, os.strerror(28)))
    with pytest.raises(NotSaved, match='The fork could not be saved: No space left'): lib.fork('s1', 's2')
    assert lib.find('s2') is None and [r['sessionId'] for r in lib.list()['sessions']]==['s1']

# ---- anything, in any order

@pytest.mark.slow
@pytest.mark.parametrize('seed', range(4))
def test_whatever_is_asked_of_a_dozen_sessions_at_once_each_request_is_answered_and_each_journal_is_whole(seed):
    rnd = random.Random(seed)
    turns = [dict(text='hello')],[dict(text='a'), dict(sleep=.05), dict(text='b')],[tool('ls', 'x', path='.')],[tool('run_shell', 'y', command='sleep 0.05; echo hi')],[dict(sleep=.3), dict(text='late')]
    class Endlessly(list):
        def __bool__(self): return True
        def pop(self, i): return rnd.choice(turns)
    with Models() as m, agent(models=m, strict=False, **BARE) as a:
        roots,sids,ids = [a.home/f'ws/q{i}' for i in range(3)],{},[]
        for r in roots: m.add(r, []); m.scripts[str(r)] = Endlessly(); r.mkdir(parents=True); sids.update({a.new(r):r for _ in range(2)})
        for n in range(200):
            sid = rnd.choice(list(sids))
            kw = dict(sessionId=sid, cwd=str(sids[sid]), mcpServers=[])
            k = rnd.choice('prompt prompt prompt prompt cancel load resume list close fork delete'.split())
            if k=='cancel': a.cancel(sid)
            elif k=='fork':
                try: sids[a.request('session/fork', kw)['sessionId']] = sids[sid]
                except Remote as e: assert e.code==-32002, e
            elif k!='delete' or rnd.random()<.3: ids.append(a.send(f'session/{k}', {} if k=='list' else kw|dict(prompt=said(rnd.choice(['go', '/help', f'/title t{n}'])))))
            if rnd.random()<.5: threading.Event().wait(rnd.random()*.05)
        for id in ids:
            try: a.wait(id, 30)
            except Remote as e: assert e.code in (-32002,-32600), e
        for r in a.request('session/list', {})['sessions']: a.request('session/load', dict(sessionId=r['sessionId'], cwd=r['cwd'], mcpServers=[])); a.request('session/close', dict(sessionId=r['sessionId']))
        for t in store(a).glob('*/*/transcript.jsonl'):
            h = reopen(t.parent, write=False)
            assert not h.journal.mending and not h.open and pair(h.messages)==h.messages
