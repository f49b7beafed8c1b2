"Kill −9 in the middle of a turn: what was acknowledged is there, the conversation opens again and goes on; and before that, the order of write, sync and answer"
import asyncio, random
from concurrent.futures import ThreadPoolExecutor
from wire import *
from ramabana_acp.agent.journal import Disk
from ramabana_acp.agent.library import Library
from ramabana_acp.models.claude import to_messages
from ramabana_acp.models.messages import text_of, user
from ramabana_acp.models.offline import ScriptedProvider
from ramabana_acp.models.openai import to_chat
from ramabana_acp.models.specs import resolve
from ramabana_acp.testing.models import check_chat, check_messages

SPECS = [resolve(n, None) for n in ('openai/gpt-5.4','anthropic/claude-sonnet-5-5')]
def library(home): return Library(Path(clean_env(home)['XDG_STATE_HOME'])/'ramabana-acp')

def step(i, k):
    "One answer of the model in turn `i`: words, and calls that leave a line in `log` each"
    calls = [tool('run_shell', f'c{i}{k}a', command=f'echo {i}{k}a >> log; sleep .03'), tool('create_file', f'c{i}{k}b', path=f'f{i}{k}', text=f'{i}{k}'),
        tool('run_shell', f'c{i}{k}c', command=f'echo {i}{k}c >> log')]
    words = [e for w in 'abc' for e in (dict(text=f'{i}{k}{w} '), dict(sleep=.01))]
    return [dict(think=f'think {i}{k}'), *words, *(calls if k else [tool('set_plan', f'p{i}', items=[f'plan {i}', 'more'])])]
def turn(i): return [step(i, 0), step(i, 1), step(i, 2), [dict(text=f'end of {i}')]]
TURNS = 3
def lines(s): return (s.read('log') or '').split()

def run_until_killed(a, s, rng):
    "Prompt until the process is killed at a point that `rng` picks; the number of turns that were answered"
    n,at,late,answered = 0,rng.randrange(2, 110),rng.choice((0, 0, rng.random()*.02)),0
    was = a.got
    def got(line):
        nonlocal n
        n += 1
        if n==at: time.sleep(late); os.kill(a.proc.pid, signal.SIGKILL)
        was(line)
    a.got = got
    try:
        for i in range(TURNS): s.prompt(f'prompt {i}', 30); answered += 1
    except (ConnectionError, OSError, TimeoutError): pass
    if a.proc.poll() is None: os.kill(a.proc.pid, signal.SIGKILL)
    a.proc.wait(SOON)
    with a.cond: a.cond.wait_for(lambda: a.eof, SOON)
    return answered

def survives(seed):
    rng,home = random.Random(seed),Path(tempfile.mkdtemp(prefix=f'kill{seed}-')).resolve()
    try:
        with agent(script=[e for i in range(TURNS) for e in turn(i)], home=home, rc=None, strict=False, **BARE) as a:
            s = a.session()
            answered = run_until_killed(a, s, rng)
            shown,told = set(s.cards),s.said()
            a.problems(); a.faults.clear()
        poll(lambda: not a.offspring())
        did,recs = lines(s),transcript(home, s.sid)
        if recs is None: assert not answered and not did and not told, f'seed {seed}: something was done and nothing is on disk'; return
        calls = {c['id'] for r in recs if r['k']=='msg' for c in r['m']['content'] if c['type']=='call'}
        cards = {}
        for r in recs:
            if r['k']=='card': cards.setdefault(r['id'], []).append(r['state'])
        begun = {i for i,st in cards.items() if 'running' in st} & calls
        assert {f'c{l}' for l in did}<=begun and shown<=set(cards), f'seed {seed}: something ran or was shown that is not on disk'
        assert not [i for i,st in cards.items() if st[-1]=='complete' and i[0]=='c' and i[-1] in 'ac' and i[1:] not in did], f'seed {seed}: done on disk and not in the world'
        want = [w for i in range(answered) for w in (f'prompt {i}', *(f'{i}{x}a {i}{x}b {i}{x}c ' for x in range(3)), f'end of {i}')]
        reopened(home, s, want, set(cards))
        assert lines(s)==did, f'seed {seed}: something ran twice'
    except AssertionError as e: raise AssertionError(f'seed {seed}: {e}') from e
    finally: shutil.rmtree(home, ignore_errors=True)

def reopened(home, s, want, cards):
    "The conversation opens, shows `want` first and ends every card, takes a prompt, and is one that every provider takes"
    def said(t): return [u['content']['text'] for u in t.told if u['sessionUpdate'] in ('user_message_chunk','agent_message_chunk')]
    with agent('--model', 'demo', home=home, **BARE) as a:
        t = Again(a, s.sid, s.root)
        got = said(t)
        assert got[:len(want)]==want, f'{got} but {want}'
        assert all(c['status'] in ('completed','failed') for c in t.cards.values()) and set(t.cards)>=cards
        assert t.stop('who are you?')=='end_turn'
        now = said(Again(a, s.sid, s.root))
        assert now[:len(got)]==got and now[len(got)]=='who are you?' and len(now)>len(got)+1
    ms = library(home).open(s.sid, write=False).messages
    assert text_of(ms[-2])=='who are you?' and ms[-1]['role']=='assistant'
    assert check_chat(dict(messages=to_chat(ms, SPECS[0]))) is None
    assert check_messages(dict(max_tokens=1, messages=to_messages([*ms, user('on')], SPECS[1]))) is None

def transcript(home, sid):
    d = library(home).find(sid)
    return d and [json.loads(b) for b in (Path(d)/'transcript.jsonl').read_bytes().split(b'\n')[:-1]] # the last one may be torn

def survive(seeds):
    with ThreadPoolExecutor(4) as ex: list(ex.map(survives, seeds))

def test_kills_at_seeded_points_lose_nothing_that_was_acknowledged(): survive(range(4))

@pytest.mark.slow
@pytest.mark.parametrize('n', range(0, 60, 10))
def test_sixty_kills(n): survive(range(n, n+10))

def test_C157_a_kill_between_call_and_result(tmp_path):
    home = tmp_path.resolve()
    calls = [tool('run_shell', 't1', command='touch began; sleep 30'), tool('run_shell', 't2', command='touch second')]
    with agent(script=[[dict(text='I run it.'), *calls], OK], home=home, rc=None, strict=False, **BARE) as a:
        s = a.session()
        s.start(); poll(lambda: s.path('began').exists())
        os.kill(a.proc.pid, signal.SIGKILL); a.proc.wait(SOON)
        for pid in a.offspring(): os.kill(pid, signal.SIGKILL)
        a.problems(); a.faults.clear()
    reopened(home, s, ['go','I run it.'], {'t1'})
    rs = [r for m in library(home).open(s.sid, write=False).messages for r in m.get('results', ())]
    assert 'interrupted' in rs[0]['text'] and 'not run' in rs[1]['text'] and not s.path('second').exists()

def test_a_kill_while_the_person_is_asked(tmp_path):
    home = tmp_path.resolve()
    with agent(script=one('create_file', path='x.txt', text='x'), home=home, rc=None, strict=False, **BARE) as a:
        s = a.session(permit=None)
        s.start(); s.until(lambda: s.asks)
        os.kill(a.proc.pid, signal.SIGKILL); a.proc.wait(SOON)
        a.problems(); a.faults.clear()
    reopened(home, s, ['go'], {'t1'})
    assert s.read('x.txt') is None

# ---- write, sync, then the side effect or the answer

class Noted(Editor):
    "An editor whose requests are noted in `seen` in the order in which they come"
    def __init__(self, seen, *args, **kw): self.seen = seen; super().__init__(*args, **kw)
    def __call__(self, method, params): self.seen.append(('ask', method)); return super().__call__(method, params)
    def on_update(self, sid, u): self.seen.append(('told', u['sessionUpdate'])); super().on_update(sid, u)

def recorded(tmp_path, script, prompts, **kw):
    "What happened in which order while `prompts` were answered, the journal and the editor together"
    from ramabana_acp.editor.acp import AcpAgent
    from ramabana_acp.editor.host import mk_agent
    from ramabana_acp.testing.editor import Inside
    seen,root = [],tmp_path/'ws'
    root.mkdir()
    async def go():
        ag = AcpAgent(mk=lambda roots, **k: mk_agent(roots, provider=ScriptedProvider(script), **k), cfg=tmp_path/'cfg')
        ed = Noted(seen, root, **kw)
        ag.on_connect(Inside(ed))
        await ag.initialize(1, ed.caps)
        ag.library.disk = Disk(note=lambda *a: seen.append(a))
        sid = (await ag.new_session(cwd=str(root)))['sessionId']
        for p in prompts: await ag.prompt([dict(type='text', text=p)], sid); seen.append(('answer', p))
        await ag.close_session(sid)
    asyncio.run(go())
    return seen

def acts(n): return [[dict(text='I work.'), tool('create_file', f'a{n}', path=f'{n}.txt', text='x'), tool('run_shell', f'b{n}', command='echo hi')], [dict(text='Done.')]]
@pytest.mark.parametrize('caps', [FULL, dict(fs=True, terminal=False)], ids=['terminal','files'])
def test_all_is_synced_before_a_side_effect_begins_and_before_the_answer(tmp_path, caps):
    seen = recorded(tmp_path, acts(1)+acts(2), ['one','two'], **caps)
    points = [i for i,(k,what) in enumerate(seen) if (k,what) in (('ask','fs/write_text_file'), ('ask','terminal/create')) or k=='answer']
    assert len(points)==(6 if caps['terminal'] else 4)
    for n,i in enumerate(points):
        since = [k for k,what in seen[points[n-1]+1 if n else 0:i] if what=='transcript.jsonl']
        assert 'write' in since and since[-1]=='fsync', f'{seen[i]}: {seen[:i][-12:]}'

def test_the_prompt_is_written_before_the_model_is_asked(tmp_path):
    seen = recorded(tmp_path, [[dict(text='hi')]], ['one'])
    at = seen.index(('told','agent_message_chunk'))
    assert ('write','transcript.jsonl') in seen[:at]
