"""A small agent that is right, or wrong in the one way that is named: `python bad_agent.py [FAULT]`. It shows that the rows of `against.py` can fail."""
import json, os, sys, threading, time

fault = sys.argv[1] if len(sys.argv)>1 else ''
lock,cancelled,n = threading.Lock(),set(),0

def put(*more, **m):
    s = b''.join(json.dumps(dict(jsonrpc='2.0', **o)).encode()+b'\n' for o in (m, *more))
    with lock: sys.stdout.buffer.write(s); sys.stdout.buffer.flush()
def fail(id, code, msg, **data):
    if fault=='two lines': msg += '\nand more'
    put(id=id, error=dict(code=code, message=msg, data=data))
    if fault=='dies': os._exit(1)
def chunk(sid, text):
    u = dict(sessionUpdate='agent_message_chunk', messageId='m', content=dict(type='text', text=text))
    return dict(method='session/update', params=dict(sessionId=sid, update=u, **({'color':1} if fault=='extra key' else {})))
def say(sid, text): put(**chunk(sid, text))

def initialize(m, p):
    v = 2 if fault=='version 2' else p['protocolVersion'] if fault=='echo' else '1' if fault=='text version' else 1
    caps = dict(loadSession=True, sessionCapabilities=dict(delete={}))
    auth = dict(twice=[dict(id='a', name='A')]*2, terminal=[dict(id='t', name='T', type='terminal')]).get(fault, [])
    put(id=m['id'], result=dict(protocolVersion=v, agentCapabilities=caps, authMethods=auth, **({} if fault=='nameless' else dict(agentInfo=dict(name='bad', title='Bad', version='1')))))

def new(m, p):
    global n
    if not isinstance(p.get('cwd'), str): return fail(m['id'], -32602, 'cwd')
    if fault=='sign in': return fail(m['id'], -32000, 'sign in')
    n += fault!='same session'
    opts = dict(configOptions=[dict(id='x', name='X', type='boolean', currentValue=True)]) if fault=='boolean' else {}
    put(id=m['id'], result=dict(sessionId='' if fault=='empty session' else f's{n}', **opts))

def prompt(m, p):
    sid,bs = p['sessionId'],p['prompt']
    if not sid.startswith('s'): return fail(m['id'], -32002, 'no such session', sessionId=sid)
    if fault=='no links' and any(b['type']=='resource_link' for b in bs): return fail(m['id'], -32602, 'links')
    if fault=='no meta' and '_meta' in p: return fail(m['id'], -32602, '_meta')
    cancelled.discard(sid)
    ask = dict(files='fs/read_text_file', terminals='terminal/create', questions='elicitation/create').get(fault)
    if ask: put(id='q', method=ask, params=dict(sessionId=sid, path='/a', command='true', message='?', mode='form'))
    say('other' if fault=='other session' else sid, 'hello')
    if fault=='latin 1':
        with lock: sys.stdout.buffer.write(b'{"jsonrpc":"2.0","method":"_x","params":{"t":"\xe9"}}\n'); sys.stdout.buffer.flush()
    if fault=='bad update': put(method='session/update', params=dict(sessionId=sid, update=dict(sessionUpdate='agent_message_chunk', content='text')))
    if fault=='noise': print('loading…', flush=True)
    if 'kit slow' in str(bs):
        while sid not in cancelled: time.sleep(0.02)
        if fault=='cancel error': return fail(m['id'], -32603, 'aborted')
    late = [chunk(sid, 'one more thing')] if fault=='late' else [] # in the same write: nothing comes between, however slow the machine
    put(*late, id=m['id'], result=dict(stopReason='done' if fault=='reason' else 'cancelled' if sid in cancelled else 'end_turn'), **(dict(error=dict(code=1, message='x')) if fault=='both' else {}))

def handle(m):
    meth,p = m['method'],m.get('params') or {}
    if 'id' in m and fault=='text ids': m['id'] = str(m['id'])
    if meth=='initialize': initialize(m, p)
    elif meth=='session/new': new(m, p)
    elif meth=='session/prompt' and isinstance(p.get('prompt'), list): threading.Thread(target=prompt, args=(m, p), daemon=True).start()
    elif meth=='session/load': say(p['sessionId'], 'hello'); put(id=m['id'], result=None if fault=='null' else {})
    elif meth=='session/delete': fail(m['id'], -32002, 'none') if fault=='strict delete' else put(id=m['id'], result={})
    elif meth=='session/cancel': cancelled.add(p['sessionId']); fault=='answers notes' and put(id=None, error=dict(code=-32600, message='a notification'))
    elif 'id' not in m or (fault=='silent' and meth.startswith('_')): return
    else: fail(m['id'], -32603 if fault=='wrong code' else -32602 if meth=='session/prompt' else -32601, f'no {meth}')

for line in sys.stdin: handle(json.loads(line)) if '"method"' in line else None
while fault=='stays': time.sleep(1)
