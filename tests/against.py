"""Hold any agent against the protocol: `python tests/against.py COMMAND…` prints a verdict a row and exits 1 when a row fails.

The rows are those of the official compatibility kit that a client can see from outside (ACP-*), and the specification's own on transport, errors, cancel,
terminals, files and permissions (SP-*). Each row has a process of its own, in a home of its own (`--shared` is faster), and a fake model server on this machine that
`OPENAI_BASE_URL` and `ANTHROPIC_BASE_URL` name; a row that wants a tool or a failure asks the model for it in the prompt. An agent that never asks that
model is judged by what it does by itself, and a row that could not be provoked is UNTESTED, which is a failure for a MANDATORY row only.
"""
import argparse, traceback
from concurrent.futures import ThreadPoolExecutor
from wire import *

REASONS = {'end_turn','max_tokens','max_turn_requests','refusal','cancelled'}
CODES = {-32700,-32600,-32601,-32602,-32603,-32000,-32002,-32800}
ROWS = []

class Untested(Exception): "The row could not be provoked"
class Skipped(Exception): "The row is about something that is not advertised"

def row(id, tier, how=None):
    "Register a row; its docstring is the statement, `how` are params of its `initialize`"
    def f(test): ROWS.append((id, tier, test, how or {})); return test
    return f

# ---- the model

SLOW = 'Please count. [[kit slow]] [[bench paced n=400 delay=0.05]]'
def wants(**kw): return '[[kit '+json.dumps(kw)+']]'

def pick(body, pat, values):
    "A call of the first tool that fits `pat`, with what its schema asks for"
    for t in body.get('tools') or []:
        f = t.get('function') or t
        if not re.search(pat, f['name'], re.I): continue
        props = (f.get('parameters') or f.get('input_schema'))['properties']
        args = {k:v for k in props for p,v in values.items() if re.fullmatch(p, k, re.I)}
        return [dict(tool=f['name'], id=f'k{time.monotonic_ns()}', args=args)]
    return [dict(text='no such tool')]

def policy(body):
    "What the model says: it obeys the directive that ends the last thing the user said, once"
    ms = [m for m in body['messages'] if m['role']!='system']
    last = max((i for i,m in enumerate(ms) if m['role']=='user' and said(m)), default=0)
    m = re.search(r'\[\[kit ([^\[\]]*)\]\](?: \[\[bench [^\]]*\]\])?\s*$', said(ms[last]))
    if m is None or any(o['role']=='assistant' for o in ms[last:]): return [dict(text='Done.')]
    if m[1]=='slow': return [e for i in range(400) for e in (dict(text=f'{i} '), dict(sleep=0.05))]
    w = json.loads(m[1])
    if 'fail' in w: return [dict(http=403, body='{"error":{"message":"the kit says no"}}')]
    if 'run' in w: return pick(body, 'shell|bash|terminal|exec|command', {'command|cmd':w['run']})
    if 'write' in w: return pick(body, 'create_file|write', {'path|file_?path|filename':w['write'], 'text|content|contents':'kit\n'})
    return pick(body, 'view_file|read', {'path|file_?path|filename':w['read']})

def said(m):
    "The last text of a message; tool results are none"
    c = m.get('content') or ''
    return c if isinstance(c, str) else next((b['text'] for b in reversed(c) if b.get('type')=='text'), '')

class Kit(Models):
    def route(self, body): return policy(body)

# ---- a row's conversation

class Talk(Agent):
    "A process for one row, or for several one after the other"
    def begin(self, patience, pause):
        "A new row: a new folder, and nothing of the row before"
        self.patience,self.pause,self.asked_at,self.fences = patience,pause,len(self.base.requests),set()
        self.home = Path(tempfile.mkdtemp(prefix='row-', dir=self.top))
        self.problems(); self.updates.clear()
        self.earlier = {*self.sessions}
    @property
    def told(self):
        "The sessions that were spoken of; one of an earlier row may have a last word"
        return {s for s,_ in list(self.updates)}-self.earlier
    @property
    def asked_model(self): return any(self.top.name in r.path for r in self.base.requests[self.asked_at:])
    def need(self, *path):
        "Skip the row unless the agent advertises what `path` names"
        o = self.info.get('agentCapabilities') or {}
        for k in path: o = (o or {}).get(k)
        if o is None or o is False: raise Skipped('.'.join(path))
    def turn(self, sid, prompt='Say hello.', timeout=None): return self.prompt(sid, prompt, timeout or self.patience)['stopReason']
    def tools(self, sid, **kw):
        "A turn in which the model calls a tool; `Untested` if the agent shows no card"
        r = self.turn(sid, wants(**kw))
        if not self.part(sid).cards(): raise Untested('no tool was called')
        return r
    def faults_of(self, *kinds): return [f'{k}: {m}' for k,m in self.problems() if k in kinds]
    def fails(self, method, params, timeout=None):
        "The error that a request is answered with"
        e = self.error(method, params, timeout)
        assert e, f'{method} {json.dumps(params)} was answered with a result'
        return e
    def error(self, method, params, timeout=None):
        "The error that a request is answered with, or None"
        try: self.request(method, params, timeout or self.patience)
        except Remote as e: return e
    def begun(self, sid, prompt):
        "Start a turn and wait until it shows signs of life; an agent that says nothing has to be taken as it is"
        n,id = len(self.part(sid).updates),self.start(sid, prompt)
        self.waits(lambda: id in self.replies or any(u['sessionUpdate'] in TURN for _,u in list(self.part(sid).updates)[n:]))
        return id
    def waits(self, f):
        "Wait for what an agent need not do"
        try: poll(f, self.patience/2)
        except TimeoutError: pass
    def stopped(self, sid, prompt, end, ready=None):
        "Start a long turn, end it by `end(id)` once it shows signs of life and `ready()`, and return its answer"
        id = self.begun(sid, prompt)
        if ready: self.waits(lambda: id in self.replies or ready())
        if id in self.replies: raise Untested('the turn was over before it could be cancelled')
        end(id)
        return self.reply(id, self.patience)
    def fence(self):
        "What was asked for before this is answered by the end of it, unless the agent does many things at a time, or does not answer this"
        self.fences.add(id := self.send('_kit/fence'))
        try: self.reply(id, self.patience)
        except TimeoutError: pass
    def quiet(self):
        "Let come what is still to come: an agent that does many things at a time is given a pause as well"
        self.fence(); time.sleep(self.pause); self.fence()

WRONG = ('kit/unknown', {}), ('_kit/unknown', {}), ('session/new', dict(cwd=5)), ('session/prompt', dict(sessionId='nobody', prompt=[])), ('session/prompt', {})
def clean(faults): assert not faults, '; '.join(faults)[:600]

# ---- transport and JSON-RPC

@row('ACP-TRANSPORT-001', 'MANDATORY')
def _(a):
    "Each line of stdout is one JSON-RPC message and nothing else"
    a.turn(a.new(a.home)); clean(a.faults_of('stdout'))

@row('ACP-TRANSPORT-002', 'MANDATORY')
def _(a):
    "Stdout is UTF-8, whatever the text"
    a.turn(a.new(a.home), 'Grüße, 日本, 👋 \u2028 é')
    for _,l in a.lines: l.decode('utf-8')

@row('ACP-JSONRPC-001', 'MANDATORY')
def _(a):
    "The answer repeats the id, an integer as an integer, a string as a string"
    for id in (0, 123456789, 'abc', '1', 'ä-1'):
        a.send('session/new', dict(cwd=str(a.home), mcpServers=[]), id=id)
        m = a.reply(id, a.patience)
        assert type(m['id']) is type(id) and m['id']==id

@row('ACP-JSONRPC-002', 'MANDATORY')
def _(a):
    "An answer has a result or an error, and an error has an integer code and a text"
    a.turn(a.new(a.home)); a.fails('_tck/does_not_exist', {})
    a.error('session/prompt', dict(sessionId='nobody', prompt=[dict(type='text', text='x')]))
    clean(a.faults_of('answer','schema'))

@row('ACP-JSONRPC-003', 'MANDATORY')
def _(a):
    "A notification is never answered"
    sid,n = a.new(a.home),len(a.lines)
    a.cancel(sid); a.notify('_kit/unknown', {}); a.notify('$/unknown', {}); a.quiet()
    ms = [json.loads(l) for _,l in a.lines[n:]]
    assert {m['id'] for m in ms if 'id' in m and 'method' not in m}<=a.fences, ms

@row('ACP-JSONRPC-004', 'ADVISORY')
def _(a):
    "An unknown method is answered with -32601"
    assert a.fails('_tck/does_not_exist', {}).code==-32601

@row('ACP-JSONRPC-005', 'ADVISORY')
def _(a):
    "The connection works on after a wrong request"
    a.fails('session/new', dict(mcpServers=5)); a.fails('tck/does_not_exist', {})
    assert a.new(a.home)

# ---- initialize

@row('ACP-INIT-001', 'MANDATORY')
def _(a):
    "`initialize` succeeds with a valid result and an integer version"
    assert type(a.info['protocolVersion']) is int; clean(a.faults_of('schema'))

@row('ACP-INIT-002', 'MANDATORY')
def _(a):
    "A client of version 1 is answered with 1"
    assert a.info['protocolVersion']==1

@row('ACP-INIT-003', 'MANDATORY', dict(protocolVersion=65535))
def _(a):
    "A client of version 65535 gets a version that the agent has"
    assert 1<=a.info['protocolVersion']<65535

@row('ACP-INIT-004', 'ADVISORY')
def _(a):
    "The agent says its name and version"
    assert a.info['agentInfo']['name'] and a.info['agentInfo']['version']

@row('ACP-SCHEMA-001', 'MANDATORY')
def _(a):
    "Every message of a plain exchange is valid"
    a.turn(a.new(a.home)); clean(a.faults_of('schema','method','stdout'))

@row('ACP-SCHEMA-002', 'ADVISORY')
def _(a):
    "No params and no result has a root key that nobody defined"
    a.turn(a.new(a.home)); clean(a.faults_of('extra'))

# ---- sessions and prompts

@row('ACP-SESSION-001', 'MANDATORY')
def _(a):
    "A session in an absolute folder gets an id"
    sid = a.new(a.home); assert isinstance(sid, str) and sid

@row('ACP-SESSION-002', 'MANDATORY')
def _(a):
    "Two sessions have two ids"
    assert a.new(a.home)!=a.new(a.home)

@row('ACP-PROMPT-001', 'MANDATORY')
def _(a):
    "A text prompt ends with a reason that is defined"
    assert a.turn(a.new(a.home)) in REASONS

@row('ACP-PROMPT-002', 'MANDATORY')
def _(a):
    "Every update of a turn is valid and names its session"
    sid = a.new(a.home); a.turn(sid)
    assert a.told=={sid}; clean(a.faults_of('schema','session'))

@row('ACP-PROMPT-003', 'ADVISORY')
def _(a):
    "A prompt with a link is taken"
    assert a.turn(a.new(a.home), [dict(type='text', text='Read this.'), dict(type='resource_link', uri='file:///tmp/x.txt', name='x.txt')]) in REASONS

@row('ACP-CANCEL-001', 'MANDATORY')
def _(a):
    "A cancelled prompt ends with `cancelled`, never with an error"
    sid = a.new(a.home)
    m = a.stopped(sid, SLOW, lambda id: a.cancel(sid))
    assert m.get('result', {}).get('stopReason')=='cancelled', m

@row('ACP-CANCEL-002', 'MANDATORY')
def _(a):
    "Nothing of a cancelled turn follows its answer"
    sid = a.new(a.home)
    a.stopped(sid, SLOW, lambda id: a.cancel(sid)); a.quiet()
    clean(a.faults_of('order'))

@row('ACP-META-001', 'ADVISORY')
def _(a):
    "A prompt with `_meta` works as any other"
    sid = a.new(a.home)
    id = a.send('session/prompt', dict(sessionId=sid, prompt=[dict(type='text', text='Hi')], _meta=dict(traceparent='00-'+'1'*32+'-'+'2'*16+'-01')))
    assert a.wait(id, a.patience)['stopReason'] in REASONS

@row('ACP-EXT-001', 'MANDATORY')
def _(a):
    "A request of an unknown `_` name gets an answer"
    a.send('_kit.example/unknown', dict(a=1), id='ext'); assert a.reply('ext', a.patience)

@row('ACP-ERROR-001', 'ADVISORY')
def _(a):
    "An error message is one line that is not empty"
    assert [a.error(m, p) for m,p in WRONG]!=[None]*len(WRONG); clean(a.faults_of('message'))

@row('ACP-SHUTDOWN-001', 'ADVISORY')
def _(a):
    "The process leaves by itself when stdin closes"
    a.turn(a.new(a.home)); a.proc.stdin.close(); a.proc.wait(a.patience/2)

# ---- what is advertised

@row('ACP-LOAD-001', 'CAPABILITY')
def _(a):
    "A session of this connection can be loaded"
    a.need('loadSession'); sid = a.new(a.home); a.turn(sid)
    a.request('session/load', dict(sessionId=sid, cwd=str(a.home), mcpServers=[]), a.patience); clean(a.faults_of('schema'))

@row('ACP-LOAD-002', 'CAPABILITY')
def _(a):
    "The replay comes before the answer and nothing of it after"
    a.need('loadSession'); sid = a.new(a.home); a.turn(sid); a.quiet()
    n = len(a.updates)
    a.request('session/load', dict(sessionId=sid, cwd=str(a.home), mcpServers=[]), a.patience)
    assert any(u['sessionUpdate']=='user_message_chunk' for _,u in a.updates[n:]); a.quiet(); clean(a.faults_of('order'))

@row('ACP-LOAD-003', 'ADVISORY')
def _(a):
    "The answer to a load is an object"
    a.need('loadSession'); sid = a.new(a.home); a.turn(sid)
    assert isinstance(a.request('session/load', dict(sessionId=sid, cwd=str(a.home), mcpServers=[]), a.patience), dict)

@row('ACP-RESUME-001', 'CAPABILITY')
def _(a):
    "A session can be resumed without a word about MCP servers"
    a.need('sessionCapabilities','resume'); sid = a.new(a.home); a.turn(sid)
    assert isinstance(a.request('session/resume', dict(sessionId=sid, cwd=str(a.home)), a.patience), dict)

@row('ACP-RESUME-002', 'CAPABILITY')
def _(a):
    "A resume replays nothing"
    a.need('sessionCapabilities','resume'); sid = a.new(a.home); a.turn(sid); a.quiet()
    n = len(a.updates)
    a.request('session/resume', dict(sessionId=sid, cwd=str(a.home)), a.patience)
    assert not any(u['sessionUpdate'].endswith('_chunk') for _,u in a.updates[n:])

@row('ACP-LIST-001', 'CAPABILITY')
def _(a):
    "The list of sessions is an array"
    a.need('sessionCapabilities','list'); a.new(a.home); assert isinstance(a.request('session/list', {}, a.patience)['sessions'], list)

@row('ACP-LIST-002', 'CAPABILITY')
def _(a):
    "The list for a folder without sessions is empty"
    a.need('sessionCapabilities','list'); assert a.request('session/list', dict(cwd='/kit/no/such/folder'), a.patience)['sessions']==[]

@row('ACP-DELETE-001', 'CAPABILITY')
def _(a):
    "A session can be deleted"
    a.need('sessionCapabilities','delete'); assert a.request('session/delete', dict(sessionId=a.new(a.home)), a.patience)=={}

@row('ACP-DELETE-002', 'ADVISORY')
def _(a):
    "Deleting what is not there is no error"
    a.need('sessionCapabilities','delete'); a.request('session/delete', dict(sessionId='nobody'), a.patience)

@row('ACP-CLOSE-001', 'CAPABILITY')
def _(a):
    "An idle session can be closed"
    a.need('sessionCapabilities','close'); assert a.request('session/close', dict(sessionId=a.new(a.home)), a.patience)=={}

@row('ACP-CLOSE-002', 'CAPABILITY')
def _(a):
    "Closing a session that works cancels its turn"
    a.need('sessionCapabilities','close'); sid = a.new(a.home)
    m = a.stopped(sid, SLOW, lambda id: a.request('session/close', dict(sessionId=sid), a.patience))
    assert m.get('result', {}).get('stopReason')=='cancelled', m

@row('ACP-ADDDIRS-001', 'CAPABILITY')
def _(a):
    "A further folder is taken"
    a.need('sessionCapabilities','additionalDirectories')
    with tempfile.TemporaryDirectory() as d: assert a.new(a.home, additionalDirectories=[d])

@row('ACP-MODES-001', 'CAPABILITY')
def _(a):
    "The current mode is one of the modes"
    m = a.sessions[a.new(a.home)].get('modes')
    if not m: raise Skipped('modes')
    assert m['currentModeId'] in [o['id'] for o in m['availableModes']]; clean(a.faults_of('schema'))

@row('ACP-MODES-002', 'CAPABILITY')
def _(a):
    "Another mode can be chosen"
    sid = a.new(a.home); m = a.sessions[sid].get('modes')
    other = [o['id'] for o in (m or {}).get('availableModes', ()) if o['id']!=m['currentModeId']]
    if not other: raise Skipped('modes')
    a.request('session/set_mode', dict(sessionId=sid, modeId=other[0]), a.patience); a.quiet(); clean(a.faults_of('schema','extra'))

def options(r): return r.get('configOptions') or []
def choices(o): return [c['value'] for g in o['options'] for c in g.get('options', [g])]
def fits(o): return isinstance(o['currentValue'], bool) if o['type']=='boolean' else o['currentValue'] in choices(o)

@row('ACP-CONFIG-001', 'CAPABILITY')
def _(a):
    "The value of each option is one that it can have"
    os_ = options(a.sessions[a.new(a.home)])
    if not os_: raise Skipped('configOptions')
    assert all(map(fits, os_))

@row('ACP-CONFIG-002', 'CAPABILITY')
def _(a):
    "Setting an option answers with all of them, the new value among them"
    sid = a.new(a.home); os_ = options(a.sessions[sid])
    for o in os_:
        v = [c for c in choices(o) if c!=o['currentValue']] if o['type']=='select' else []
        if not v: continue
        r = options(a.request('session/set_config_option', dict(sessionId=sid, configId=o['id'], value=v[0]), a.patience))
        assert {x['id'] for x in r}>={x['id'] for x in os_} and next(x for x in r if x['id']==o['id'])['currentValue']==v[0]
        return
    raise Skipped('configOptions')

@row('ACP-CONFIG-003', 'MANDATORY')
def _(a):
    "No boolean option for a client that did not ask for them"
    assert not [o for o in options(a.sessions[a.new(a.home)]) if o['type']=='boolean']

PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
WAV = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA='
BLOCKS = dict(image=dict(type='image', data=PNG, mimeType='image/png'), audio=dict(type='audio', data=WAV, mimeType='audio/wav'),
    embeddedContext=dict(type='resource', resource=dict(uri='file:///a.txt', text='hello', mimeType='text/plain')))
def _media(cap):
    def f(a):
        a.need('promptCapabilities', cap)
        assert a.turn(a.new(a.home), [dict(type='text', text='What is this?'), BLOCKS[cap]]) in REASONS
    f.__doc__ = f'A prompt with {cap} ends with a reason that is defined'
    return f
for i,cap in enumerate(BLOCKS, 1): row(f'ACP-PROMPTCAP-{i:03}', 'CAPABILITY')(_media(cap))

# ---- sign-in and client capabilities

@row('ACP-AUTH-001', 'ADVISORY')
def _(a):
    "No sign-in method twice"
    ids = [m['id'] for m in a.info.get('authMethods') or []]; assert len(set(ids))==len(ids)

@row('ACP-AUTH-002', 'MANDATORY')
def _(a):
    "No terminal sign-in for a client that has no terminal for it"
    assert not [m for m in a.info.get('authMethods') or [] if m.get('type')=='terminal']

@row('ACP-AUTH-005', 'ADVISORY')
def _(a):
    "Without a sign-in method, a session does not ask for a sign-in"
    try: a.new(a.home)
    except Remote as e: assert a.info.get('authMethods') or e.code!=-32000, e

def _uses(kind, statement, id):
    def f(a):
        sid = a.new(a.home)
        (a.home/'kit.txt').write_text('kit')
        for p in ('Say hello.', wants(read='kit.txt'), wants(write='kit2.txt'), wants(run='true')): a.turn(sid, p)
        assert not [m for m,_ in a.part(sid).asked if m.startswith(kind)]
    f.__doc__ = statement
    row(id, 'MANDATORY')(f)
_uses('fs/', 'No file is asked of a client that offers none', 'ACP-CLIENTCAP-001')
_uses('terminal/', 'No terminal is asked of a client that offers none', 'ACP-CLIENTCAP-002')
_uses('elicitation/', 'No question is put to a client that takes none', 'ACP-CLIENTCAP-003')

# ---- the specification's own: transport

@row('SP-IO-01', 'SPEC-MUST')
def _(a):
    "What a command prints stays out of the protocol"
    a.tools(a.new(a.home), run='echo 123; printf \'{"jsonrpc":"2.0"}\'; echo err >&2'); clean(a.faults_of('stdout'))

@row('SP-ERR-06', 'SPEC-MUST')
def _(a):
    "A broken line is answered with -32700, a broken envelope with -32600, or neither is; the connection lives"
    lines = {b'{bad json':-32700, b'\xff\xfe':-32700, b'':None, **dict.fromkeys((b'[]', b'42', b'"x"', b'null', b'{"foo":"bar"}'), -32600)}
    for bad,code in lines.items():
        n = len(a.replies.get(None, []))
        a.raw(bad+b'\n'); a.new(a.home, timeout=a.patience)
        assert [m['error']['code'] for m in a.replies.get(None, [])[n:]] in ([], [code]), bad

@row('SP-INIT-01', 'SPEC-MUST', dict(protocolVersion=2))
def _(a):
    "A version the agent does not speak is answered with its own"
    assert a.info['protocolVersion']==1

@row('SP-INIT-02', 'SPEC-MUST', dict(clientCapabilities=dict(fs=None, terminal=None)))
def _(a):
    "A capability that is null is not offered"
    sid = a.new(a.home); (a.home/'kit.txt').write_text('kit')
    for p in (wants(read='kit.txt'), wants(run='true')): a.turn(sid, p)
    assert not [m for m,_ in a.part(sid).asked if m.startswith(('fs/','terminal/'))]

@row('SP-INIT-03', 'SPEC-SHOULD', dict(init=False))
def _(a):
    "Nothing but `initialize` is served before it: -32600"
    assert a.fails('session/new', dict(cwd=str(a.home), mcpServers=[])).code==-32600

@row('SP-INIT-04', 'SPEC-SHOULD')
def _(a):
    "The agent says its name, title and version"
    assert all(a.info['agentInfo'][k] for k in ('name','title','version'))

@row('SP-INIT-05', 'SPEC-MUST')
def _(a):
    "The four baseline methods and the two baseline blocks work"
    sid = a.new(a.home); a.cancel(sid)
    assert a.turn(sid, [dict(type='text', text='Hi'), dict(type='resource_link', uri='file:///a', name='a')]) in REASONS and a.updates

# ---- errors

@row('SP-ERR-01', 'SPEC-SHOULD')
def _(a):
    "An unknown method, or one that is not advertised, is -32601"
    assert a.fails('kit/unknown', {}).code==-32601
    c = a.info.get('agentCapabilities') or {}
    for k in ('list','resume','close','delete'):
        if (c.get('sessionCapabilities') or {}).get(k) is None: assert a.fails(f'session/{k}', dict(sessionId='x', cwd='/tmp')).code==-32601, k
    if not c.get('loadSession'): assert a.fails('session/load', dict(sessionId='x', cwd='/tmp', mcpServers=[])).code==-32601

@row('SP-ERR-02', 'SPEC-SHOULD')
def _(a):
    "Params that cannot be used are -32602, and the connection works on"
    sid = a.new(a.home)
    for m,p in (('session/new', dict(cwd=5, mcpServers=[])), ('session/new', dict(cwd='relative/folder', mcpServers=[])), ('session/new', dict(cwd=str(a.home), mcpServers='x')),
        ('session/prompt', dict(sessionId=sid, prompt='x')), ('session/prompt', dict(prompt=[])), ('session/prompt', dict(sessionId=sid, prompt=[dict(type='text')]))):
        assert a.fails(m, p).code==-32602, (m, p)
    assert a.turn(sid) in REASONS

@row('SP-ERR-03', 'SPEC-SHOULD')
def _(a):
    "An unknown session is -32002 and named in the data"
    asks = [('session/prompt', dict(prompt=[dict(type='text', text='x')]))]
    for k,p in (('close', {}), ('resume', dict(cwd=str(a.home)))):
        if ((a.info.get('agentCapabilities') or {}).get('sessionCapabilities') or {}).get(k) is not None: asks.append((f'session/{k}', p))
    if (a.info.get('agentCapabilities') or {}).get('loadSession'): asks.append(('session/load', dict(cwd=str(a.home), mcpServers=[])))
    for m,p in asks:
        e = a.fails(m, dict(sessionId='kit-nobody', **p))
        assert e.code==-32002 and e.data['sessionId']=='kit-nobody', (m, e.code, e.data)

@row('SP-ERR-04', 'SPEC-SHOULD')
def _(a):
    "-32000 is for a missing sign-in and for nothing else"
    assert -32000 not in [e.code for m,p in WRONG if (e := a.error(m, p))]
    sid = a.new(a.home)
    i,j = a.begun(sid, SLOW),a.start(sid, 'Hi')
    for x in (i,j):
        a.cancel(sid) # the second may have waited for the first
        assert a.reply(x, a.patience).get('error', {}).get('code')!=-32000

@row('SP-ERR-05', 'SPEC-SHOULD')
def _(a):
    "A code of the agent's own lies outside the reserved range"
    seen = [e.code for m,p in WRONG if (e := a.error(m, p))]
    assert not [c for c in seen if -32768<=c<=-32000 and c not in CODES]

@row('SP-ERR-07', 'SPEC-SHOULD')
def _(a):
    "An error repeats no secret of the request"
    mcp = [dict(name='m', command='/bin/true', args=[], env=[dict(name='K', value='sk-ant-KITSECRET')])]
    a.fails('session/new', dict(cwd=5, mcpServers=mcp))
    assert b'KITSECRET' not in b''.join(l for _,l in a.lines) and 'KITSECRET' not in a.stderr

# ---- turns and cancel

@row('SP-PROMPT-01', 'SPEC-MUST')
def _(a):
    "A failed turn is an error and not a reason"
    id = a.start(a.new(a.home), wants(fail=1))
    m = a.reply(id, a.patience)
    if 'error' not in m and not a.asked_model: raise Untested('the agent did not ask the model')
    assert 'error' in m, m

@row('SP-PROMPT-02', 'SPEC-MUST')
def _(a):
    "Cancel stops a running command and closes its card before the answer"
    sid = a.new(a.home)
    m = a.stopped(sid, wants(run=f'touch {a.home}/runs; sleep 300'), lambda id: a.cancel(sid), (a.home/'runs').exists)
    if not a.part(sid).cards(): raise Untested('no tool was called')
    assert m.get('result', {}).get('stopReason')=='cancelled', m
    a.quiet(); clean(a.faults_of('card','order'))

@row('SP-PROMPT-03', 'SPEC-MUST')
def _(a):
    "No update of a turn follows its answer"
    sid = a.new(a.home)
    for p in ('Say hello.', wants(run='true'), 'Bye.'): a.turn(sid, p); a.quiet()
    clean(a.faults_of('order'))

@row('SP-CANCEL-01', 'SPEC-MUST')
def _(a):
    "A cancel in the same write as its prompt is not lost, and a cancel while idle is not remembered"
    sid = a.new(a.home); a.cancel(sid)
    assert a.turn(sid) in REASONS-{'cancelled'}
    p = dict(sessionId=sid, prompt=[dict(type='text', text=SLOW)])
    a.raw(b''.join(json.dumps(dict(jsonrpc='2.0', **m)).encode()+b'\n' for m in (dict(id='pc', method='session/prompt', params=p), dict(method='session/cancel', params=dict(sessionId=sid)))))
    assert a.wait('pc', a.patience)['stopReason']=='cancelled'
    assert a.turn(sid) in REASONS-{'cancelled'}

@row('SP-CANCELREQ-01', 'SPEC-MUST')
def _(a):
    "A withdrawn request is still answered, by a result or by -32800, and an unknown id is ignored"
    sid = a.new(a.home)
    a.notify('$/cancel_request', dict(requestId='kit-nobody'))
    m = a.stopped(sid, SLOW, lambda id: a.notify('$/cancel_request', dict(requestId=id)))
    assert 'result' in m or m['error']['code']==-32800, m
    assert a.turn(sid) in REASONS

@row('SP-CLOSE-01', 'SPEC-MUST')
def _(a):
    "A closed session is not active any more"
    a.need('sessionCapabilities','close'); sid = a.new(a.home); a.request('session/close', dict(sessionId=sid), a.patience)
    a.fails('session/prompt', dict(sessionId=sid, prompt=[dict(type='text', text='x')]))

@row('SP-LOAD-01', 'SPEC-MUST')
def _(a):
    "A load shows the whole conversation, cards and all, and every card at its end"
    a.need('loadSession'); sid = a.new(a.home)
    (a.home/'kit.txt').write_text('kit')
    a.turn(sid, 'The first word is kitchen.'); a.tools(sid, read='kit.txt'); a.quiet()
    was = set(a.part(sid).cards())
    n = len(a.updates)
    a.request('session/load', dict(sessionId=sid, cwd=str(a.home), mcpServers=[]), a.patience)
    us = [u for _,u in a.updates[n:]]
    typed = [u['content'].get('text', '') for u in us if u['sessionUpdate']=='user_message_chunk']
    cards = {u['toolCallId']:u.get('status') for u in us if u['sessionUpdate'].startswith('tool_call')}
    assert 'kitchen' in typed[0] and wants(read='kit.txt') in typed[-1] and set(cards)==was and set(cards.values())<={'completed','failed'}, (typed, cards)
    assert [u for u in us if u['sessionUpdate']=='agent_message_chunk']; clean(a.faults_of('order','card'))

@row('SP-RESUME-01', 'SPEC-MUST')
def _(a):
    "A closed session that is resumed shows nothing of the past and takes a prompt"
    a.need('sessionCapabilities','resume'); a.need('sessionCapabilities','close'); sid = a.new(a.home)
    a.turn(sid); a.quiet(); a.request('session/close', dict(sessionId=sid), a.patience)
    n = len(a.updates)
    a.request('session/resume', dict(sessionId=sid, cwd=str(a.home), mcpServers=[]), a.patience)
    assert not [u for _,u in a.updates[n:] if u['sessionUpdate'] in TURN]
    assert a.turn(sid) in REASONS

@row('SP-LIST-01', 'SPEC-SHOULD')
def _(a):
    "A cursor that was not given and a folder that is not absolute are refused; the pages end"
    a.need('sessionCapabilities','list'); sid = a.new(a.home); a.turn(sid)
    for p in (dict(cursor='kit no cursor'), dict(cwd='relative/folder')): assert a.fails('session/list', p).code==-32602, p
    r,seen = a.request('session/list', {}, a.patience),[]
    for _ in range(200):
        seen += [s['sessionId'] for s in r['sessions']]
        if r.get('nextCursor') is None: break
        r = a.request('session/list', dict(cursor=r['nextCursor']), a.patience)
    assert r.get('nextCursor') is None and sid in seen and len(set(seen))==len(seen)

@row('SP-LIST-02', 'SPEC-MUST')
def _(a):
    "The list for a folder holds its sessions and no others"
    a.need('sessionCapabilities','list')
    (other := a.home/'other').mkdir()
    sid,o = a.new(a.home),a.new(other)
    for s in (sid, o): a.turn(s)
    rows = a.request('session/list', dict(cwd=str(a.home)), a.patience)['sessions']
    assert [r['sessionId'] for r in rows]==[sid] and all(os.path.isabs(r['cwd']) for r in rows), rows

@row('SP-DELETE-01', 'SPEC-MUST')
def _(a):
    "A deleted session is in no list and cannot be loaded"
    a.need('sessionCapabilities','delete'); sid = a.new(a.home); a.turn(sid)
    a.request('session/delete', dict(sessionId=sid), a.patience)
    caps = a.info['agentCapabilities']
    if (caps.get('sessionCapabilities') or {}).get('list') is not None: assert sid not in [s['sessionId'] for s in a.request('session/list', {}, a.patience)['sessions']]
    if caps.get('loadSession'): a.fails('session/load', dict(sessionId=sid, cwd=str(a.home), mcpServers=[]))

@row('SP-CMD-01', 'SPEC-MAY')
def _(a):
    "Nothing is sent about a session that the client has not been told of"
    a.turn(a.new(a.home)); clean(a.faults_of('session'))

@row('SP-MSGID-01', 'SPEC-SHOULD')
def _(a):
    "The chunks of a message carry its id"
    sid = a.new(a.home); a.turn(sid)
    us = a.part(sid).of('agent_message_chunk'); assert us and all(u.get('messageId') for u in us)

@row('SP-META-01', 'SPEC-MUST')
def _(a):
    "A key of `_meta` replaces no parameter"
    sid = a.new(a.home, _meta=dict(cwd='/kit/nowhere', session_id='x', self=1))
    id = a.send('session/prompt', dict(sessionId=sid, prompt=[dict(type='text', text='Hi')], _meta=dict(sessionId='x', session_id='x', prompt=[], self=1)))
    assert a.wait(id, a.patience)['stopReason'] in REASONS and a.told=={sid}

@row('SP-EXT-01', 'SPEC-MUST')
def _(a):
    "An unknown extension request is -32601, an unknown extension notification is nothing"
    a.notify('_kit/unknown', dict(a=1)); assert a.fails('_kit/unknown', {}).code==-32601

@row('SP-AUTH-01', 'SPEC-MUST')
def _(a):
    "A terminal sign-in is offered only to a client that can show one, and names no command"
    assert not [m for m in a.info.get('authMethods') or [] if m.get('type')=='terminal' or 'command' in m]

# ---- tools, files, terminals, permissions

TOOLS = dict(clientCapabilities=dict(fs=dict(readTextFile=True, writeTextFile=True), terminal=True))

@row('SP-TOOL-01', 'SPEC-SHOULD', TOOLS)
def _(a):
    "A card ends completed or failed, with content, before the answer"
    sid = a.new(a.home); a.tools(sid, run='echo hi')
    assert all(c['status'] in ('completed','failed') and c.get('content') for c in a.part(sid).cards().values()); clean(a.faults_of('card'))

@row('SP-TOOL-02', 'SPEC-MUST', TOOLS)
def _(a):
    "Cards have ids of their own and absolute paths"
    sid = a.new(a.home)
    for n in 'ab': a.tools(sid, write=f'{a.home}/{n}.txt')
    assert len(a.part(sid).cards())==2; clean(a.faults_of('card','path'))

@row('SP-PATH-01', 'SPEC-MUST', TOOLS)
def _(a):
    "Every path on the wire is absolute"
    sid = a.new(a.home); a.tools(sid, write='kit.txt'); clean(a.faults_of('path')+a.part(sid).breaches)

@row('SP-NEW-01', 'SPEC-MUST')
def _(a):
    "A relative path lies in the session's folder, whatever the folder of the process"
    d = a.home/'elsewhere'; d.mkdir()
    a.tools(a.new(d), write='kit.txt')
    assert (d/'kit.txt').exists() and not (a.home/'kit.txt').exists()

@row('SP-FS-01', 'SPEC-MUST', TOOLS)
def _(a):
    "A file is read and written through the client that offers it, by an absolute path"
    (a.home/'kit.txt').write_text('kit'); sid = a.new(a.home)
    for kw in (dict(read=f'{a.home}/kit.txt'), dict(write=f'{a.home}/new.txt')): a.tools(sid, **kw)
    used = {m for m,_ in a.part(sid).asked}
    assert {'fs/read_text_file','fs/write_text_file'}<=used and not a.part(sid).breaches

def opened(ed, n=1):
    "Has the agent opened `n` terminals, and said or asked something about the last of them since?"
    t = [*ed.terminals][n-1:]
    return t and any(t[0] in str(o) for o in [*ed.asked, *ed.updates])

@row('SP-TERM-01', 'SPEC-MUST', TOOLS)
def _(a):
    "A terminal is shown in its card and released, also when the turn is cancelled"
    sid = a.new(a.home); ed = a.part(sid)
    a.tools(sid, run='echo hi'); a.served(sid)
    if not ed.terminals: raise Untested('no terminal was opened')
    shown = {c.get('terminalId') for u in ed.of('tool_call')+ed.of('tool_call_update') for c in u.get('content') or []}
    assert not ed.unreleased and not ed.breaches and set(ed.terminals)<=shown
    m = a.stopped(sid, wants(run='sleep 300'), lambda id: a.cancel(sid), lambda: opened(ed, 2)); a.served(sid)
    assert m.get('result', {}).get('stopReason')=='cancelled'
    assert not ed.unreleased and not [t for t in ed.terminals.values() if t.running]

@row('SP-TERM-02', 'SPEC-SHOULD', TOOLS)
def _(a):
    "An editor whose terminal never ends is not waited for after a cancel"
    sid = a.new(a.home); ed = a.part(sid)
    ed.answers['terminal/wait_for_exit'] = ed.answers['terminal/kill'] = NoAnswer
    m = a.stopped(sid, wants(run='sleep 300'), lambda id: a.cancel(sid), lambda: opened(ed))
    if not ed.terminals: raise Untested('no terminal was opened')
    poll(lambda: not ed.unreleased, a.patience/2)
    assert m.get('result', {}).get('stopReason')=='cancelled', m

ODD = [{}, dict(outcome={}), dict(outcome=dict(outcome='cancelled')), dict(outcome=dict(outcome='selected', optionId='kit-never-offered')), dict(outcome='allow'), Remote(-32603, 'no')]
@row('SP-PERM-01', 'SPEC-MUST')
def _(a):
    "Cancelled, an error and an unknown answer are no yes"
    for i,odd in enumerate(ODD):
        sid = a.new(a.home); a.part(sid).permit = odd
        a.reply(a.start(sid, wants(run=f'touch {a.home}/ran{i}')), a.patience)
        if not a.part(sid).permissions: raise Untested('no permission was asked')
        assert not (a.home/f'ran{i}').exists(), odd

@row('SP-PERM-02', 'SPEC-MUST')
def _(a):
    "The options of a card have ids of their own and kinds that are defined"
    sid = a.new(a.home); a.tools(sid, run='true')
    if not a.part(sid).permissions: raise Untested('no permission was asked')
    for p in a.part(sid).permissions:
        ids = [o['optionId'] for o in p['options']]
        assert ids and len(set(ids))==len(ids)
    clean(a.faults_of('schema','card'))

# ---- the run

def talk(cmd, how, patience, base):
    "An agent's process, initialized as a row wants it"
    how,top = dict(how),Path(tempfile.mkdtemp(prefix='against-')).resolve()
    url,key = f'{base.base}/{top.name}','sk-kit-0123456789'
    a = Talk(cmd, top, clean_env(top, OPENAI_BASE_URL=f'{url}/v1', OPENAI_API_KEY=key, ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY=key), **BARE)
    a.top,a.base = top,base
    try:
        if how.pop('init', True): a.initialize(how.pop('clientCapabilities', {}), timeout=patience, **how)
    except BaseException: end(a); raise
    return a

def end(a):
    a.kill(); a.close(0)
    for ed in a.parts.values(): ed.close(strict=False)
    shutil.rmtree(a.top, ignore_errors=True)

def judge(cmd, r, patience, base, pool=None, pause=.5):
    "The verdict on one row: `(id, tier, statement, verdict, why, seconds)`; with a `pool`, rows of the same kind share a process until one fails"
    id,tier,test,how = r
    t,a,v = time.monotonic(),None,('FAIL','')
    key = json.dumps(how) if pool is not None and 'SHUTDOWN' not in id else None
    try:
        a = (pool.pop(key, None) if key else None) or talk(cmd, how, patience, base)
        a.begin(patience, pause)
        test(a)
        v = 'PASS',''
    except Skipped as e: v = 'SKIP',f'not advertised: {e}'
    except Untested as e: v = 'UNTESTED',str(e)
    except Exception as e: v = 'FAIL',f'{type(e).__name__}: {str(e) or traceback.extract_tb(e.__traceback__)[-1].line}'
    finally:
        if a and key and v[0] in ('PASS','SKIP'): pool[key] = a
        elif a: end(a)
    return id,tier,test.__doc__,v[0],line(v[1]),time.monotonic()-t

def line(s): return ' '.join(s.split())[:300]

def failed(v): return v[3]=='FAIL' or (v[3]=='UNTESTED' and v[1]=='MANDATORY')

def run(cmd, only='', patience=20, jobs=None, shared=False):
    "Yield the verdict on each row whose id matches `only`"
    rows,pool = [r for r in ROWS if re.search(only, r[0])],{} if shared else None
    with Kit() as base, ThreadPoolExecutor(1 if shared else jobs or os.cpu_count()) as ex:
        yield from ex.map(lambda r: judge(cmd, r, patience, base, pool), rows)
        for a in (pool or {}).values(): end(a)

def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument('--only', default='', help='rows whose id matches this expression')
    ap.add_argument('--timeout', type=float, default=20, help='seconds to wait for an answer')
    ap.add_argument('--jobs', type=int, help='processes at a time')
    ap.add_argument('--shared', action='store_true', help='one process for all rows of a kind')
    ap.add_argument('command', nargs=argparse.REMAINDER)
    o = ap.parse_args()
    if not o.command: ap.error('no command')
    vs = []
    for v in run(o.command, o.only, o.timeout, o.jobs, o.shared):
        vs.append(v)
        print(f'{v[3]:8} {v[0]:20} {v[1]:11} {v[2]}{"  — "+v[4] if v[4] else ""}', flush=True)
    n = {k:sum(v[3]==k for v in vs) for k in ('PASS','FAIL','UNTESTED','SKIP')}
    print(f'{len(vs)} rows: '+', '.join(f'{c} {k}' for k,c in n.items()))
    sys.exit(any(map(failed, vs)))

if __name__=='__main__': main()
