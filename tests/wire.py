"""What the wire tests stand on: an agent's process with a fake editor and a fake model, and a check of every line it writes.

`agent(…)` starts a process of its own; `full` and `bare` are fixtures that share one process among tests, each test with sessions of its own.
Whatever a test looks at, all that the agent wrote is held against the schema and the rules of the protocol when the test ends.
"""
import json, os, re, shutil, signal, subprocess, sys, tempfile, threading, time
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
import pytest
from jsonschema import Draft202012Validator
from ramabana_acp.client import NoAnswer, Remote
from ramabana_acp.core import InternalError
from ramabana_acp.testing.editor import Editor, EditorClient, Left
from ramabana_acp.testing.models import FakeModel

# ---- the schema

SCHEMA = json.loads((Path(__file__).parent/'schema/acp-v1-1.25.0.json').read_text())
DEFS = SCHEMA['$defs']
ASKS  = {d['x-method']:k for k,d in DEFS.items() if k.endswith('Request') and d.get('x-side')=='client'}
TELLS = {d['x-method']:k for k,d in DEFS.items() if k.endswith('Notification') and d.get('x-side') in ('client','protocol')}
SAYS  = {d['x-method']:k for k,d in DEFS.items() if k.endswith('Response') and d.get('x-side')=='agent'}
UPDATES = {v['properties']['sessionUpdate']['const']:v['allOf'][0]['$ref'].split('/')[-1] for v in DEFS['SessionUpdate']['oneOf']}
TURN = {k for k in UPDATES if k.startswith(('agent_','user_','tool_call','plan'))}

@lru_cache(None)
def validator(name): return Draft202012Validator({'$ref':f'#/$defs/{name}', '$defs':DEFS})

FREE = {'text','messageId','toolCallId','sessionId','title','terminalId','path','oldText','newText'}
def shape(o):
    "`o` without what the schema leaves free: any string there is as good as any other, unless it is empty"
    if isinstance(o, dict): return {k:'x' if k in FREE and v and isinstance(v, str) else shape(v) for k,v in o.items()}
    return [*map(shape, o)] if isinstance(o, list) else o

@lru_cache(4096)
def _fits(name, s): return not _breaks(name, json.loads(s))

def invalid(name, o):
    "What the schema's definition `name` says against `o`; most messages have the shape of one that was looked at before"
    return [] if _fits(name, json.dumps(shape(o))) else _breaks(name, o)

def _breaks(name, o):
    es = [f'{name}{"".join(f".{p}" for p in e.absolute_path)}: {e.message[:200]}' for e in validator(name).iter_errors(o)]
    extra = set(o)-set(DEFS[name].get('properties') or o)-{'_meta'} if isinstance(o, dict) else set()
    if name in UPDATES.values(): extra -= {'sessionUpdate'}
    return es+[f'{name}: unknown root key {k}' for k in sorted(extra)]

def _no(s): raise ValueError(f'{s} is no JSON')
def _once(pairs):
    if len({k for k,_ in pairs})<len(pairs): raise ValueError('a key twice')
    return dict(pairs)

def strict(line):
    "The message in one line of stdout; `ValueError` for what a strict reader would not take"
    if not line.endswith(b'\n'): raise ValueError('no line end')
    m = json.loads(line.decode('utf-8'), parse_constant=_no, object_pairs_hook=_once)
    json.dumps(m, ensure_ascii=False).encode() # half of a surrogate pair
    if not isinstance(m, dict) or m.get('jsonrpc')!='2.0': raise ValueError('no JSON-RPC 2.0 message')
    return m

def strings(o):
    "Every string in `o`"
    if isinstance(o, str): yield o
    elif isinstance(o, dict): yield from (s for k,v in o.items() for x in (k,v) for s in strings(x))
    elif isinstance(o, list): yield from (s for v in o for s in strings(v))

class Checker:
    "Follows a conversation and writes down what breaks the protocol"
    def __init__(self): self.sent,self.turns,self.shared,self.known,self.cards,self.asked,self.loads,self.faults = {},{},set(),set(),{},set(),set(),[]
    def bad(self, what, *msgs): self.faults += [('extra' if 'unknown root key' in m else what, m) for m in msgs]
    def ours(self, m):
        if not isinstance(m, dict) or 'method' not in m or 'id' not in m or isinstance(m['id'], (dict,list)): return
        if self.sent.get(idkey(m['id'])): self.shared.add(idkey(m['id'])) # which answer is whose cannot be told
        self.sent.setdefault(idkey(m['id']), []).append(m)
        p = m.get('params')
        sid = p.get('sessionId') if isinstance(p, dict) else None
        if m['method'] in ('session/prompt','session/load') and isinstance(sid, str):
            self.turns.setdefault(sid, []).append(idkey(m['id']))
            if m['method']=='session/load': self.known.add(sid); self.loads.add(idkey(m['id']))
        if m['method']=='session/resume' and isinstance(sid, str): self.known.add(sid)
    def theirs(self, line):
        try: m = strict(line)
        except (ValueError, RecursionError) as e: return self.bad('stdout', f'{e}: {line[:200]!r}')
        self.extra('the message', m, ('jsonrpc','id','method','params','result','error'))
        if 'method' in m: (self.request if 'id' in m else self.note)(m, m.get('params'))
        elif ('result' in m) == ('error' in m) or 'id' not in m: self.bad('answer', f'neither request nor response: {line[:200]!r}')
        else: self.response(m)
    def extra(self, what, o, keys): self.bad('extra', *(f'{what}: unknown root key {k}' for k in sorted(set(o)-set(keys))))
    def response(self, m):
        if 'error' in m:
            self.bad('schema', *invalid('Error', m['error']))
            msg = m['error'].get('message') or ''
            if not msg.strip() or '\n' in msg: self.bad('message', f'an error message is one line: {msg!r}')
            if 'Traceback' in json.dumps(m['error']): self.bad('message', f'a traceback on the wire: {m["error"]}')
        if m['id'] is None: return None if 'error' in m else self.bad('answer', 'a result for nobody')
        k = idkey(m['id'])
        q = self.sent.get(k)
        if not q: return self.bad('answer', f'an answer that nobody asked for, or a second one: {json.dumps(m)[:200]}')
        req = q.pop(0)
        meth = req['method']
        if 'result' in m and meth in SAYS and k not in self.shared: self.bad('schema', *invalid(SAYS[meth], m['result']))
        if 'result' in m and meth in ('session/new','session/fork') and isinstance(m['result'], dict): self.known.add(m['result'].get('sessionId'))
        for sid,ts in self.turns.items():
            if q or k not in ts: continue # the turns of a shared id are over when all of its requests are
            ts[:] = [t for t in ts if t!=k]
            left = [k for (s,k),st in self.cards.items() if s==sid and st not in ('completed','failed')]
            if left and not self.turns[sid]: self.bad('card', f'cards left open by the answer: {left}')
    def request(self, m, p):
        if idkey(m['id']) in self.asked: self.bad('answer', f'the same id for two requests: {m["id"]!r}')
        self.asked.add(idkey(m['id']))
        if m['method'] not in ASKS: return None if m['method'].startswith('_') else self.bad('method', f'unknown request {m["method"]}')
        self.bad('schema', *invalid(ASKS[m['method']], p))
        if isinstance(p, dict) and p.get('sessionId') not in self.known: self.bad('session', f'{m["method"]} for an unknown session')
        if m['method']=='session/request_permission':
            if (p['sessionId'], p['toolCall']['toolCallId']) not in self.cards: self.bad('card', f'a permission for a card that was never shown: {p["toolCall"]["toolCallId"]}')
            self.paths(p['toolCall'])
    def note(self, m, p):
        if m['method'] not in TELLS: return None if m['method'].startswith('_') else self.bad('method', f'unknown notification {m["method"]}')
        if m['method']!='session/update': self.bad('schema', *invalid(TELLS[m['method']], p))
        if m['method']!='session/update': return
        self.extra('session/update', p, ('sessionId','update','_meta'))
        sid,u = p['sessionId'],p['update']
        kind = u.get('sessionUpdate')
        if kind not in UPDATES: return self.bad('schema', f'unknown update {kind!r}')
        self.bad('schema', *invalid(UPDATES[kind], u))
        if sid not in self.known: self.bad('session', f'{kind} for a session the client has not been told of')
        if kind in TURN and not self.turns.get(sid): self.bad('order', f'{kind} while no prompt is open: {json.dumps(u)[:200]}')
        if kind.startswith('tool_call'):
            id = sid,u['toolCallId']
            if kind=='tool_call' and self.loads & {*self.turns.get(sid, ())}: self.cards.pop(id, None) # a replay shows it again
            if (kind=='tool_call') == (id in self.cards): self.bad('card', f'{kind} for a card that {"exists" if id in self.cards else "was never shown"}: {id[1]}')
            was = self.cards.get(id, 'pending')
            if was in ('completed','failed') and u.get('status') and u['status']!=was: self.bad('card', f'card {id[1]} goes from {was} to {u["status"]}')
            self.cards[id] = u.get('status') or was
            self.paths(u)
    def paths(self, u):
        ps = [l['path'] for l in u.get('locations') or []]+[c['path'] for c in u.get('content') or [] if c.get('type')=='diff']
        self.bad('path', *(f'a path that is not absolute: {p}' for p in ps if not os.path.isabs(p)))

def idkey(id): return f'{type(id).__name__}:{id}'

# ---- the model

class Endless:
    "A script that never runs out: every request is routed"
    def __init__(self, f): self.f = f
    def pop(self, i): return self.f

class Models(FakeModel):
    "One model server for many sessions: a script a folder, which it finds in the system prompt"
    def __init__(self):
        super().__init__(models=()) # a menu of models that grows by itself would come between any two lines of a test
        self.scripts,self.seen,self.script = {},{},Endless(self.route)
    def add(self, root, script): self.scripts[str(root)],self.seen[str(root)] = list(script),[]
    def route(self, body):
        sys_ = str(body.get('system') or body['messages'][0].get('content'))
        root = max((r for r in self.scripts if r in sys_), key=len, default=None)
        if root is None: return [dict(http=500, body='the system prompt names no folder of a test')]
        self.seen[root].append(body)
        entry = self.scripts[root].pop(0) if self.scripts[root] else [dict(text='(script ended)')]
        return entry(body) if callable(entry) else entry

# ---- the agent

# Seconds after which what has to be at once has not been. How soon it is, is measured by the benchmark: here a machine may stall or be ten times slower,
# and what ends only by itself ends much later.
SOON = 20
FULL,BARE = dict(fs=True, terminal=True),dict(fs=False, terminal=False)
PYTHON = [sys.executable, '-m', 'ramabana_acp']

def clean_env(home, **env):
    "An environment that holds no key and whose every home is `home`"
    keep = {k:v for k,v in os.environ.items() if k in ('PATH','LANG','LC_ALL','TERM','USER','LOGNAME','PYTHONPATH','VIRTUAL_ENV')}
    xdg = {f'XDG_{k}_HOME':str(home/f'.{k.lower()}') for k in ('CONFIG','STATE','CACHE','DATA')}
    return {**keep, 'HOME':str(home), 'SHELL':'/bin/sh', **xdg, **{k:str(v) for k,v in env.items()}}

def fill(o, root):
    "`o` with the folder in place of `$ROOT`"
    if isinstance(o, str): return o.replace('$ROOT', str(root))
    if isinstance(o, dict): return {k:fill(v, root) for k,v in o.items()}
    return [fill(v, root) for v in o] if isinstance(o, list) else o

class Agent(EditorClient):
    "An agent's process; what it and we say is kept in order, for `verify`"
    def __init__(self, cmd, home, env=None, models=None, cwd=None, **kw):
        self.trace,self.check,self.at,self.log_at,self.parts,self.home,self.models,self.n = [],Checker(),0,0,{},home,models,0
        super().__init__(cmd, home, cwd, env or clean_env(home), **kw)
        self.on_update = self._update
    def raw(self, data):
        for l in data.splitlines():
            try: self.trace.append(('>', json.loads(l)))
            except ValueError: pass # a test writes what is no message
        super().raw(data)
    def got(self, line):
        self.trace.append(('<', line))
        super().got(line)
    def part(self, sid):
        "The editor of one session; updates may come before the session's id is known to the test"
        if sid not in self.parts:
            ed = Editor(self.home)
            ed.caps = self.ed.caps
            self.parts.setdefault(sid, ed)
        return self.parts[sid]
    def _update(self, sid, u): self.part(sid).on_update(sid, u)
    def _answer(self, method, params):
        try: return self.part(params['sessionId'])(method, params)
        except Left:
            self.hang_up()
            raise NoAnswer() from None
    def session(self, script=(), files=None, root=None, links=None, new=None, **kw):
        "A session in a fresh folder with `files`, and `script` for its model"
        self.n += 1
        root = Path(root or self.home/f'ws/r{self.n}').resolve()
        root.mkdir(parents=True, exist_ok=True)
        for k,v in (files or {}).items():
            (root/k).parent.mkdir(parents=True, exist_ok=True)
            (root/k).write_bytes(v if isinstance(v, bytes) else v.encode())
        if self.models: self.models.add(root, fill(list(script), root))
        return Session(self, root, new or {}, **kw)
    def served(self, sid):
        "Return once all that the agent asked for in session `sid` is answered: each request has a thread here, which may end after the turn's answer was read"
        poll(lambda: not any(p.get('sessionId')==sid for _,p in list(self.open.values())))
    def leaves(self, timeout=SOON):
        "The exit code, once the process has left and all that it wrote is read"
        code = self.proc.wait(timeout)
        with self.cond: assert self.cond.wait_for(lambda: self.eof, SOON)
        return code
    def close(self, timeout=SOON, strict=False):
        "As an editor's client does, and all that the process wrote is read"
        rc = super().close(timeout, strict)
        for t in self._readers: t.join(timeout)
        return rc
    def problems(self):
        "What broke the protocol since the last time, as `(what, message)`"
        todo,self.at = self.trace[self.at:],len(self.trace)
        for way,m in todo: (self.check.ours if way=='>' else self.check.theirs)(m)
        bad,self.check.faults = self.check.faults,[]
        return bad
    def verify(self, traceback=False):
        "Raise `AssertionError` for all that was wrong since the last time"
        bad = [f'{k}: {m}' for k,m in self.problems()]+self.faults
        self.faults.clear()
        log,self.log_at = ''.join(self._log[self.log_at:]),len(self._log)
        if 'Traceback' in log and not traceback: bad.append(f'a traceback in the log: {log[-3000:]}')
        assert not bad, '\n'.join(dict.fromkeys(bad))
    def until_log(self, s, timeout=20): poll(lambda: s in self.stderr, timeout)
    def offspring(self):
        "The commands of this agent that still run, whoever is their parent now: its home is in their environment"
        return [pid for pid,env in environs() if pid!=self.proc.pid and f'HOME={self.home}' in env]
    def leaves_nothing(self):
        "No command of this agent runs on; what has been killed may take a moment to be gone"
        return poll(lambda: not self.offspring(), SOON)
    def fence(self):
        "Return once the agent has taken in all that it was told, and what it had to say by then is here"
        try: self.request('_fence')
        except Remote as e: assert e.code==-32601, e
    def tail(self, n=20): return '\n'.join(('> ' if w=='>' else '< ')+str(m)[:300] for w,m in self.trace[-n:])

class Session:
    "One session: its folder, its editor, its model"
    def __init__(self, a, root, new, **kw):
        self.a,self.root = a,root
        self.sid = a.new(root, **new)
        self.result = a.sessions[self.sid]
        was,self.ed = a.part(self.sid),Editor(root, **kw)
        for k in ('caps','updates','asked','breaches','terminals','cond'): setattr(self.ed, k, getattr(was, k))
        a.parts[self.sid] = self.ed
    def start(self, prompt='go'): return self.a.start(self.sid, prompt)
    def wait(self, id, timeout=40): return self.a.wait(id, timeout)
    def prompt(self, prompt='go', timeout=40): return self.wait(self.start(prompt), timeout)
    def stop(self, prompt='go'): return self.prompt(prompt)['stopReason']
    def cancel(self): self.a.cancel(self.sid)
    def stopped(self, id):
        "Cancel, and see that prompt `id` is answered so, long before it would have ended by itself"
        self.cancel()
        return self.wait(id, SOON)['stopReason']=='cancelled'
    def close(self): return self.a.request('session/close', dict(sessionId=self.sid))
    def until(self, f, timeout=20): return self.ed.until(f, timeout)
    def said(self, kind='agent_message_chunk'): return self.ed.said(kind=kind)
    def path(self, name): return self.root/name
    def read(self, name): return (self.root/name).read_text() if (self.root/name).exists() else None
    @property
    def cards(self): return self.ed.cards()
    def card(self, i=0): return list(self.cards.values())[i]
    def shown(self, i=0):
        "All the text of one card"
        return '\n'.join(strings(self.card(i).get('content') or []))
    @property
    def asks(self): return self.ed.permissions
    @property
    def requests(self): return self.a.models.seen[str(self.root)]
    def heard(self, i=-1):
        "All the text of one model request after the system prompt"
        return '\n'.join(strings(self.requests[i]['messages'][1:]))
    def results(self, i=-1):
        "The text of each tool result in one model request, in order"
        return [m['content'] if isinstance(m['content'], str) else '\n'.join(strings(m['content'])) for m in self.requests[i]['messages'] if m['role']=='tool']

class Again(Session):
    "A session of an earlier time, opened by `method`; what was told before its answer is in `told`"
    def __init__(self, a, sid, root, method='session/load', params=None, timeout=30, **kw):
        self.a,self.root,self.sid,self.ed = a,Path(root),sid,Editor(root, **kw)
        self.ed.caps,a.parts[sid] = a.ed.caps,self.ed
        k = len(a.lines)
        id = a.send(method, dict(sessionId=sid, cwd=str(root), mcpServers=[]) | (params or {}))
        try: self.result = a.sessions[sid] = a.wait(id, timeout)
        except BaseException: a.parts.pop(sid); raise
        ms = [json.loads(l) for _,l in a.lines[k:]]
        ms = ms[:next(i for i,m in enumerate(ms) if m.get('id')==id and 'method' not in m)]
        self.told = [m['params']['update'] for m in ms if m.get('method')=='session/update' and m['params']['sessionId']==sid]

def tool(name, call='t1', /, **args): return dict(tool=name, id=call, args=args)
def one(name, /, **args):
    "A script of one tool call and a last word"
    return [[tool(name, **args)], [dict(text='ok')]]
OK = [dict(text='ok')]

def option(kind):
    "The permission option of one kind among those of a card"
    return lambda p: next(o['optionId'] for o in p['options'] if o['kind']==kind)

def by_call(**picks):
    "Answer each card by a word in its title, path or command"
    return lambda p: next((v for k,v in picks.items() if k in json.dumps(p['toolCall'])), 'reject_once')

def running(what):
    "The processes whose command line holds `what`: a shell that could still do what its script says"
    ps = subprocess.run(['ps','-axww','-o','pid=,stat=,args='], capture_output=True, text=True, errors='replace').stdout
    return [l for l in ps.splitlines() if str(what) in l and 'Z' not in l.split()[1]]

def environ(d):
    "The environment of the process of folder `d`, '' for a zombie; in the middle of an exec it has none for a moment"
    for _ in range(500):
        if (env := (d/'environ').read_text(errors='replace')) or (d/'stat').read_text().rpartition(')')[2].split()[0] in 'ZX': break
        time.sleep(.001)
    return env

def environs():
    "`(pid, environment)` of every process that can be looked into and is no zombie"
    if not Path('/proc/self/environ').exists():
        ps = subprocess.run(['ps','-axwwE','-o','pid=,stat=,command='], capture_output=True, text=True, errors='replace').stdout
        yield from ((int(f[0]), f[2].split()) for l in ps.splitlines() if len(f := l.split(None, 2))==3 and 'Z' not in f[1])
        return
    for d in Path('/proc').iterdir():
        if not d.name.isdigit(): continue
        try: yield int(d.name), environ(d).split('\0')
        except OSError: pass # gone, or somebody else's

def poll(f, timeout=20):
    "Wait until `f()` is true; looks often at first, since most things take a millisecond"
    end,nap = time.monotonic()+timeout,.0005
    while not (v := f()):
        if time.monotonic()>end: raise TimeoutError(f'not within {timeout} s')
        time.sleep(nap)
        nap = min(nap*1.5, .01)
    return v

def shut(ed, strict=True):
    "Close the editor `ed`; a release that has arrived may not be served yet"
    try: poll(lambda: not (strict and ed.unreleased), SOON)
    except TimeoutError: pass # `close` says so
    ed.close(strict)

@contextmanager
def agent(*args, script=None, env=None, init=True, models=None, cmd=None, rc=0, traceback=False, strict=True, home=None, **kw):
    "A process of its own: with a `script`, its model is `scripted/FILE`; with `models`, that server; else what `args` say; a `home` that is given is kept"
    tmp = Path(home or tempfile.mkdtemp(prefix='wire-')).resolve()
    a = None
    try:
        extra = {}
        if script is not None:
            (tmp/'script.json').write_text(json.dumps(fill(list(script), tmp/'ws/r1')))
            args = ('--model', f'scripted/{tmp/"script.json"}', *args)
        if models: args,extra = ('--model', 'openai/fake-model', *args),dict(OPENAI_BASE_URL=f'{models.base}/v1', OPENAI_API_KEY='sk-test-0123456789abcdef')
        a = Agent([*(cmd or PYTHON), *args], tmp, clean_env(tmp, **{**extra, **(env or {})}), models, **{**FULL, **kw})
        if init: a.initialize()
        yield a
        code = a.close()
        for ed in a.parts.values(): shut(ed, strict and not ed.gone and not a.ed.gone)
        a.verify(traceback)
        if rc is not None: assert code==rc, f'exit code {code}: {a.stderr[-2000:]}'
    except BaseException:
        if a: print(f'--- the last of the conversation\n{a.tail()}\n--- log\n{a.stderr[-2000:]}', file=sys.stderr)
        raise
    finally:
        if a:
            a.kill(); a.close(0)
            for ed in a.parts.values(): ed.close(strict=False)
        if home is None: shutil.rmtree(tmp, ignore_errors=True)

# ---- processes that tests share

@pytest.fixture(scope='session')
def models():
    with Models() as m: yield m

class Shared:
    "Keeps one process for many tests; a test that fails takes it down with it"
    def __init__(self, models, **kw): self.models,self.kw,self.cm,self.a = models,kw,None,None
    def get(self):
        if self.a is None or self.a.proc.poll() is not None:
            self.drop()
            self.cm = agent(models=self.models, **self.kw)
            self.a = self.cm.__enter__()
            self.a.session([OK]).prompt(timeout=60) # the first turn loads the libraries, and tests look at the clock
        return self.a
    def drop(self):
        if self.cm is None: return
        cm,self.cm,self.a = self.cm,None,None
        try: cm.__exit__(None, None, None)
        except AssertionError: pass # the test that broke it has failed already
    def lend(self):
        "For one test: check what it did, and close its sessions"
        a = self.get()
        was = set(a.parts)
        try: yield a
        except BaseException: self.drop(); raise
        try:
            assert a.proc.poll() is None, f'the agent has left: {a.stderr[-2000:]}'
            for sid in set(a.parts)-was:
                shut(a.parts[sid])
                if sid in a.sessions:
                    try: a.request('session/close', dict(sessionId=sid), timeout=SOON)
                    except Remote as e: assert e.code==-32002, e # closed by the test
            a.verify()
        except BaseException:
            print(f'--- the last of the conversation\n{a.tail()}\n--- log\n{a.stderr[-2000:]}', file=sys.stderr)
            self.drop(); raise

@pytest.fixture(scope='session')
def full_process(models):
    s = Shared(models, **FULL)
    yield s
    s.drop()

@pytest.fixture(scope='session')
def bare_process(models):
    s = Shared(models, **BARE)
    yield s
    s.drop()

@pytest.fixture
def full(full_process):
    "An agent whose editor offers files and terminals"
    yield from full_process.lend()

@pytest.fixture
def bare(bare_process):
    "An agent whose editor offers nothing"
    yield from bare_process.lend()
