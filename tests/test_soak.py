"A day's work in one process: five hundred turns, fifty sessions, and nothing that stays behind"
from collections import Counter
from wire import *

SPY = '''
import asyncio, collections, gc, json, os, runpy, signal, sys
def count(*args):
    "Write down what lives in this process"
    for _ in range(3): gc.collect()
    every,home = gc.get_objects(),os.environ['HOME']
    of = lambda n: [o for o in every if type(o).__name__==n and type(o).__module__.startswith('ramabana_acp')]
    kinds = collections.Counter(f'{type(o).__module__}.{type(o).__qualname__}' for o in every)
    loops = [o for o in every if isinstance(o, asyncio.AbstractEventLoop) and not o.is_closed()]
    res = dict(kinds=kinds, objects=len(every), tasks=sum(len(asyncio.all_tasks(l)) for l in loops), open=sum(len(w.open) for w in of('Wire')), pending=sum(len(w.pending) for w in of('Wire')),
        queued=sum(w.out.size for w in of('Wire')), sessions=sum(len(a.sessions) for a in of('AcpAgent')), posts=sum(len(b.posts) for b in of('Bridge')))
    with open(home+'/spy.tmp', 'w') as f: json.dump(res, f)
    os.replace(home+'/spy.tmp', home+'/spy.json')
signal.signal(signal.SIGUSR1, count)
sys.argv[0] = 'ramabana-acp'
runpy.run_module('ramabana_acp', run_name='__main__')
'''

def looks(a):
    "What the process is, from outside and from inside"
    f = a.home/'spy.json'
    f.unlink(missing_ok=True)
    a.proc.send_signal(signal.SIGUSR1)
    poll(f.exists, 60)
    o,p = json.loads(f.read_text()),Path(f'/proc/{a.proc.pid}')
    o['kinds'] = Counter(o['kinds'])
    if not p.exists(): return o
    rss = int((p/'statm').read_text().split()[1])*os.sysconf('SC_PAGE_SIZE')>>10
    return {**o, 'KiB':rss, 'threads':len(list((p/'task').iterdir())), 'fds':len(list((p/'fd').iterdir())), 'children':len(a.offspring())}

def at_rest(a):
    "`looks`, once what the last request left to do is done"
    def calm():
        o = looks(a)
        return o if not (o['open'] or o['pending'] or o['queued'] or o['posts'] or o.get('children')) else None
    return poll(calm, 30)

FIGURES = 'KiB threads fds children objects tasks open pending sessions'.split()
def figures(o): return {k:o[k] for k in FIGURES if k in o}
def more(a, b, least):
    "The kinds of objects of which there are at least `least` more in `b` than in `a`"
    return {k:n-a['kinds'][k] for k,n in b['kinds'].most_common() if n-a['kinds'][k]>=least}

# ---- the work

TOOLS = [tool('view_file', 'v', path='a.txt'), tool('edit_file', 'e', path='a.txt', old='n = 0', new='n = 1'), tool('edit_file', 'f', path='a.txt', old='n = 1', new='n = 0'), tool('run_shell', 'r', command='cat a.txt')]
LOUD = [tool('run_shell', 'l', command='seq 1 60000')]
KINDS = dict(tools=[TOOLS,OK], talk=[[dict(think='hm'), dict(text='well')]], refused=[[tool('create_file', 'c', path='x.txt', text='')],OK], error=[[dict(http=400, body='{"error":{"message":"no"}}')]],
    cancel=[[dict(text='so'), dict(sleep=60)]], cut=[[dict(text='half'), dict(cut='fin')]], loud=[LOUD,OK])

class Work:
    "A model that plays what each prompt names"
    def __init__(self): self.left = []
    def __call__(self, body):
        ks = re.findall(r'do: (\w+)', str(body['messages'][-1]))
        if ks: self.left = [*KINDS[ks[-1]]]
        return self.left.pop(0)

def turn(s, kind):
    n = len(s.ed.updates)
    id = s.start(f'do: {kind}')
    if kind=='cancel': s.until(lambda: any(u['sessionUpdate']=='agent_message_chunk' for _,u in s.ed.updates[n:])); s.cancel()
    try: return s.wait(id, 60)['stopReason']
    except Remote as e: return e.data['kind']
ENDS = dict(tools='end_turn', talk='end_turn', refused='end_turn', error='bad_request', cancel='cancelled', cut='cut', loud='end_turn')
def permit(p): return 'reject_once' if 'x.txt' in str(p['toolCall']) else 'allow_once'

def session(a, *kinds, close=True):
    s = a.session(iter_(Work()), {'a.txt':'n = 0\n'}, permit=permit)
    for k in kinds: assert turn(s, k)==ENDS[k], k
    if close: s.close(); forget(a, s)
    return s
def iter_(f): return [f]*100_000

def forget(a, s):
    "Check what was said so far, and keep none of it: this process is not under test"
    a.verify()
    a.parts.pop(s.sid).close()
    a.models.seen[str(s.root)].clear()
    a.trace.clear(); a.lines.clear(); a.updates.clear(); a.replies.clear(); a.at = 0

MIX = ['tools','talk','refused','error','cancel','cut','tools','loud']

def leaves_nothing(a, one, record_property):
    "Do `one()` fifty times: what the second half leaves behind is nothing"
    for _ in range(5): one()
    marks = [at_rest(a)]
    for _ in range(2):
        for _ in range(25): one()
        marks.append(at_rest(a))
    for k,o in zip(('before','after 25','after 50'), marks): print(k, figures(o)); record_property(k, figures(o))
    a0,a1,a2 = marks
    assert not more(a1, a2, 20)
    for k in ('threads','fds','children','tasks','open','pending','sessions'): assert a2.get(k, 0)<=a0.get(k, 0), k

@pytest.mark.slow
@pytest.mark.parametrize('caps', [FULL,BARE], ids=['full','bare'])
def test_fifty_sessions_of_six_turns_leave_nothing_behind(caps, models, record_property):
    with agent(cmd=[sys.executable,'-c',SPY], models=models, **caps) as a:
        for _ in range(5): session(a, *MIX)
        marks = [at_rest(a)]
        for _ in range(2):
            for i in range(25): session(a, *(MIX[(i+k)%len(MIX)] for k in range(6)))
            marks.append(at_rest(a))
        for k,o in zip(('before','after 25','after 50'), marks): print(k, figures(o)); record_property(k, figures(o))
        grown = more(marks[1], marks[2], 20)
        print('more of', dict(list(grown.items())[:20]))
        a0,a1,a2 = marks
        assert not grown
        for k in ('threads','fds','children','tasks','open','pending','sessions'): assert a2.get(k, 0)<=a0.get(k, 0), k
        assert a2['objects']-a1['objects']<1000
        if 'KiB' in a2: assert a2['KiB']-a0['KiB']<20<<10

@pytest.mark.slow
def test_a_conversation_of_250_turns_keeps_its_words_and_nothing_else(models, record_property):
    with agent(cmd=[sys.executable,'-c',SPY], models=models, **FULL) as a:
        session(a, *MIX)
        marks,s,took = [at_rest(a)],session(a, close=False),[]
        for i in range(250):
            t = time.monotonic()
            turn(s, 'tools')
            took.append(time.monotonic()-t)
            if i in (149,249): marks.append(at_rest(a)); forget_words(a, s)
        s.close()
        marks.append(at_rest(a))
        for k,o in zip(('before','after 150','after 250','closed'), marks): print(k, figures(o)); record_property(k, figures(o))
        a0,a1,a2,a3 = marks
        per = {k:round(n/100, 1) for k,n in more(a1, a2, 50).items()}
        print('more of, a turn', per, 'ms a turn', [round(1000*sum(took[i:i+20])/20) for i in (0,130,230)])
        record_property('more of, a turn', per)
        assert set(per)<={'builtins.dict','builtins.list','builtins.tuple'}, per # the transcript
        assert all(n<=40 for n in per.values()), per
        for k in ('threads','fds','children','tasks','open','pending'): assert a2.get(k, 0)<=a1.get(k, 0) and a3.get(k, 0)<=a0.get(k, 0), k
        assert not more(a1, a3, 20) and a3['objects']<a1['objects']-1000

def forget_words(a, s):
    a.verify()
    s.ed.updates.clear(); s.ed.asked.clear()
    a.models.seen[str(s.root)].clear()
    a.trace.clear(); a.lines.clear(); a.updates.clear(); a.replies.clear(); a.at = 0

@pytest.mark.slow
def test_the_scripted_model_and_sessions_that_are_closed_in_the_middle_leave_nothing_behind(record_property):
    with agent(cmd=[sys.executable,'-c',SPY], script=[TOOLS,OK,[dict(text='x'), dict(sleep=60)]], **BARE) as a:
        def one():
            s = a.session(files={'a.txt':'n = 0\n'}, permit=permit)
            assert s.stop()=='end_turn'
            id = s.start()
            s.until(lambda: s.said().endswith('x'))
            s.close()
            assert s.wait(id)['stopReason']=='cancelled'
            a.verify(); a.parts.pop(s.sid).close(); a.trace.clear(); a.lines.clear(); a.updates.clear(); a.replies.clear(); a.at = 0
        leaves_nothing(a, one, record_property)

@pytest.mark.slow
def test_conversations_that_are_stored_loaded_forked_and_deleted_leave_nothing_in_memory(record_property):
    with agent(cmd=[sys.executable,'-c',SPY], script=[TOOLS,OK,*[[dict(text='x'*2000)]]*9], **BARE) as a:
        def one():
            s = a.session(files={'a.txt':'n = 0\n'}, permit=permit)
            for _ in range(2): assert s.stop()=='end_turn'
            s.close()
            a.request('session/load', dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[]))
            assert s.stop()=='end_turn'
            f = a.request('session/fork', dict(sessionId=s.sid, cwd=str(s.root), mcpServers=[]))['sessionId']
            a.request('session/list', {})
            a.request('session/close', dict(sessionId=f))
            a.request('session/resume', dict(sessionId=f, cwd=str(s.root), mcpServers=[]))
            for sid in (s.sid, f): a.request('session/delete', dict(sessionId=sid))
            a.verify()
            for sid in (s.sid, f): a.parts.pop(sid).close()
            a.trace.clear(); a.lines.clear(); a.updates.clear(); a.replies.clear(); a.at = 0
        leaves_nothing(a, one, record_property)

BIG = 'a line of text\n'*100_000
@pytest.mark.slow
def test_eighty_edits_of_a_large_file_do_not_keep_eighty_copies(models, record_property):
    with agent(cmd=[sys.executable,'-c',SPY], models=models, **BARE) as a:
        edits = [e for i in range(80) for e in ([tool('edit_file', f'e{i}', path='big.txt', old=f'n = {i}', new=f'n = {i+1}')], OK)]
        s = a.session(edits, {'big.txt':'n = 0\n'+BIG}, permit='allow_always')
        marks = []
        for i in range(80):
            assert s.stop()=='end_turn'
            if i in (9,79): marks.append(at_rest(a))
        print(*map(figures, marks)); record_property('KiB', [o.get('KiB') for o in marks])
        assert s.read('big.txt').startswith('n = 80\n')
        if 'KiB' in marks[0]: assert marks[1]['KiB']-marks[0]['KiB']<40<<10
