"What every provider inherits: failures told apart, cancel that closes the socket, joined text, histories that can be sent"
import asyncio, importlib, os, ssl, threading, time
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import pytest
from hypothesis import strategies as st
from width import wide
from wire import SOON, poll
from ramabana_acp.core import Cancelled, Token, secret
from ramabana_acp.models.messages import assistant, call, calls, pair, result, results, text, thinking, user
from ramabana_acp.models.offline import ScriptedProvider
from ramabana_acp.models.errors import ModelError
from ramabana_acp.models.provider import Pipe, Provider, provider_loop
from ramabana_acp.models.specs import ModelSpec
from ramabana_acp.models.sse import client_for, post
from ramabana_acp.testing.models import FakeModel

KEY = secret('sk-test-hunter2hunter2')
SDKS = dict(openai='AsyncOpenAI', anthropic='AsyncAnthropic')

class Faults(BaseHTTPRequestHandler):
    "A server whose path says what goes wrong"
    protocol_version = 'HTTP/1.1'
    here,gone = set(),set() # paths of silent requests
    def log_message(self, *a): pass
    def answer(self, status, body, **headers):
        self.send_response(status)
        for k,v in dict(headers, content_length=len(body)).items(): self.send_header(k.replace('_', '-'), str(v))
        self.end_headers(); self.wfile.write(body)
    def part(self, **headers):
        self.send_response(200)
        for k,v in headers.items(): self.send_header(k.replace('_', '-'), v)
        self.end_headers(); self.wfile.write(b'6\r\nhello\n\r\n'); self.wfile.flush(); self.close_connection = True
    def do_POST(self):
        self.rfile.read(int(self.headers['content-length']))
        what = self.path.split('/')[1]
        if what in ANSWERS: self.answer(*ANSWERS[what][:2], **ANSWERS[what][2])
        elif what=='chunked': self.part(transfer_encoding='chunked')
        elif what=='length': self.part(content_length='100')
        elif what=='drop': self.close_connection = True
        elif what=='silent':
            self.here.add(self.path)
            if not self.connection.recv(1): self.gone.add(self.path)

def said(s): return f'{{"error":{{"message":"{s}"}}}}'.encode()

ANSWERS = {
    'rate': (429, said('slow down'), dict(retry_after='7'), ('rate_limit', 429, 7.0, True)),
    'busy': (529, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', {}, ('overloaded', 529, None, True)),
    'html': (502, b'<html><head><title>502 Bad Gateway</title></head></html>', dict(content_type='text/html'), ('server', 502, None, True)),
    'key': (401, said(f'bad key {KEY}'), {}, ('auth.rejected', 401, None, False)),
    'forbidden': (403, said('not for you'), {}, ('auth.rejected', 403, None, False)),
    'pay': (402, said('no money'), {}, ('quota', 402, None, False)),
    'broke': (429, b'{"error":{"message":"see your plan","code":"insufficient_quota"}}', {}, ('quota', 429, None, False)),
    'bad': (400, said('image exceeds'), {}, ('bad_request', 400, None, False)),
    'long': (400, said('prompt is too long: 214676 tokens > 200000 maximum'), {}, ('context_overflow', 400, None, False)),
    'empty': (500, b'', {}, ('server', 500, None, True))}

@pytest.fixture(scope='module')
def base():
    srv = ThreadingHTTPServer(('127.0.0.1', 0), Faults)
    srv.daemon_threads = True
    threading.Thread(target=srv.serve_forever, daemon=True).start()
    yield f'http://127.0.0.1:{srv.server_port}'
    srv.shutdown()

class Raw(Provider):
    "One request through a real SDK, its lines as text"
    retries = 0
    def __init__(self, sdk, url, timeout=10):
        super().__init__(ModelSpec(f'{sdk}/m', sdk, 'm'))
        self.client = getattr(importlib.import_module(sdk), SDKS[sdk])(api_key=KEY, base_url=url, max_retries=0, timeout=timeout)
    async def run(self, req, emit):
        import httpx2
        r = await self.client.post('/x', body={'a':1}, cast_to=httpx2.Response, stream=True)
        async for l in r.aiter_lines(): emit('text', l)
        emit('done', assistant([text('x')]))

def failure(p, tok=None):
    "How `p` fails"
    with pytest.raises(ModelError) as e: list(p.stream([user('x')], tok=tok))
    assert KEY not in str(e.value) and '\n' not in str(e.value) and len(str(e.value).encode())<=2048
    return e.value

@pytest.mark.parametrize('sdk', SDKS)
@pytest.mark.parametrize('what', ANSWERS)
def test_an_error_answer_is_told_by_its_kind_without_the_key(base, sdk, what):
    e = failure(Raw(sdk, f'{base}/{what}'))
    assert (e.kind, e.status, e.retry_after, e.retryable)==ANSWERS[what][3]

@pytest.mark.parametrize('sdk', SDKS)
def test_a_connection_that_is_lost_or_never_made_is_told_apart_from_a_cut_answer(base, sdk):
    refused = failure(Raw(sdk, 'http://127.0.0.1:9/'))
    assert (refused.kind, 'cannot be reached' in str(refused))==('network', True)
    assert failure(Raw(sdk, base.replace('http:', 'https:'))).kind=='network'
    assert failure(Raw(sdk, f'{base}/drop')).kind=='network'
    assert 'no answer in time' in str(failure(Raw(sdk, f'{base}/silent', timeout=.2)))
    assert [failure(Raw(sdk, f'{base}/{p}')).kind for p in ('chunked','length')]==['cut','cut']

# ---------------------------------------------------------------- the way to the server

SELF_SIGNED = """-----BEGIN CERTIFICATE-----
MIIBfjCCASWgAwIBAgIUF3ws6oBPhQ21pRGtjzHv/884oZwwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJMTI3LjAuMC4xMCAXDTI2MTEzMDE4MDMxNloYDzIxMjYxMTA2
MTgwMzE2WjAUMRIwEAYDVQQDDAkxMjcuMC4wLjEwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAS4dcYL8yVPDiOU/DQ86IHKfevdHrOjSyKEbkUTk0YSrc5krst8WCr5
pWZmH3R2jSZfuk6yc3j4wkCeDG0OJ0evo1MwUTAdBgNVHQ4EFgQUuikmZnoBStKS
ZtdgS2yO0S4OcewwHwYDVR0jBBgwFoAUuikmZnoBStKSZtdgS2yO0S4OcewwDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiA5H6+o5qenUMc8DURcgaoP
cBuoMwPbgTlBF4pogDo5OgIgQv31oMrb4Mjbu+XNJSawROW2XAg78QwZZUv23MCA
DSs=
-----END CERTIFICATE-----
-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIMD7sBYTAXkNYJEsQtU9diBbCV7y5Boz3d83uy8tj5TRoAoGCCqGSM49
AwEHoUQDQgAEuHXGC/MlTw4jlPw0POiByn3r3R6zo0sihG5FE5NGEq3OZK7LfFgq
+aVmZh90do0mX7pOsnN4+MJAngxtDidHrw==
-----END EC PRIVATE KEY-----
""" # made for this test, for 127.0.0.1; nobody trusts it

@pytest.fixture(scope='module')
def tls(tmp_path_factory):
    "A server whose certificate nobody has signed"
    pem = tmp_path_factory.mktemp('tls')/'self.pem'
    pem.write_text(SELF_SIGNED)
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); ctx.load_cert_chain(pem)
    srv = ThreadingHTTPServer(('127.0.0.1', 0), Faults)
    srv.handle_error = lambda *a: None
    srv.socket = ctx.wrap_socket(srv.socket, server_side=True)
    threading.Thread(target=srv.serve_forever, daemon=True).start()
    yield f'https://127.0.0.1:{srv.server_port}'
    srv.shutdown()

class Asks(Raw):
    "As providers ask: through the client that all of them share"
    def __init__(self, sdk, url, key=KEY):
        Provider.__init__(self, ModelSpec(f'{sdk}/m', sdk, 'm'))
        self.sdk,self.url,self.own = sdk,url,key
    async def run(self, req, emit):
        r = await post(client_for(f'{self.sdk}.{SDKS[self.sdk]}', self.url, self.own), '/v1/messages', b'{"stream":true,"max_tokens":9,"messages":[{"role":"user","content":"x"}]}')
        async for l in r.aiter_lines(): emit('text', l)
        emit('done', assistant([text('x')]))

def no_proxies(monkeypatch, **env):
    for k in [k for k in os.environ if k.lower().endswith('_proxy')]: monkeypatch.delenv(k)
    for k,v in env.items(): monkeypatch.setenv(k, v)

@pytest.mark.parametrize('sdk', SDKS)
def test_the_reason_that_a_server_cannot_be_reached_names_the_machine(base, tls, sdk, monkeypatch):
    no_proxies(monkeypatch)
    for url,words in {'http://127.0.0.1:9':'connection refused (127.0.0.1:9)', 'http://nope.invalid':'nobody knows a machine of this name (nope.invalid:80)',
        base.replace('http:', 'https:'):'no TLS is spoken there', tls:'its certificate is not trusted: self-signed certificate', f'{base}/drop':'127.0.0.1:'}.items():
        e = failure(Asks(sdk, url))
        assert (e.kind, e.status)==('network', None) and words in str(e) and 'Errno' not in str(e) and '_ssl.c' not in str(e), str(e)

@pytest.mark.parametrize('sdk', SDKS)
def test_a_proxy_of_the_environment_is_used_and_named_when_it_is_the_reason(sdk, monkeypatch):
    with FakeModel([[dict(text='through')]]) as m:
        no_proxies(monkeypatch, HTTP_PROXY=m.base)
        assert 'through' in ''.join(s for k,s in Asks(sdk, f'http://{sdk}.example').stream([user('x')]) if k=='text')
        assert m.requests[0].path==f'http://{sdk}.example/v1/messages'
    no_proxies(monkeypatch, HTTP_PROXY='http://me:secret@127.0.0.1:9')
    e = failure(Asks(sdk, f'http://{sdk}2.example'))
    assert e.kind=='network' and f'({sdk}2.example:80, through the proxy 127.0.0.1:9)' in str(e) and 'secret' not in str(e)
    no_proxies(monkeypatch, HTTP_PROXY='http://127.0.0.1:9', NO_PROXY=f'{sdk}3.invalid')
    assert 'proxy' not in str(failure(Asks(sdk, f'http://{sdk}3.invalid')))
    no_proxies(monkeypatch, ALL_PROXY='socks5://127.0.0.1:9')
    e = failure(Asks(sdk, f'http://{sdk}4.example'))
    assert e.kind=='protocol' and 'proxy' in str(e) and 'SOCKS' in str(e)

@pytest.mark.parametrize('sdk', SDKS)
def test_a_server_on_this_machine_is_asked_directly_whatever_proxy_is_set(sdk, monkeypatch):
    with FakeModel([[dict(text='here')]]) as m:
        no_proxies(monkeypatch, HTTP_PROXY='http://127.0.0.1:9', ALL_PROXY='http://127.0.0.1:9')
        assert 'here' in ''.join(s for k,s in Asks(sdk, m.base).stream([user('x')]) if k=='text')

@pytest.mark.parametrize('sdk', SDKS)
@pytest.mark.parametrize('key', ['sk-ä', 'sk-one\nsk-two', 'sk-one\tx', 'sk-\ud800'])
def test_a_key_that_no_header_can_hold_is_said_to_be_one(sdk, key):
    e = failure(Asks(sdk, 'http://127.0.0.1:9', key))
    assert e.kind=='auth.rejected' and key not in str(e)

@pytest.mark.parametrize('sdk', SDKS)
def test_cancel_of_a_silent_server_is_at_once_and_closes_the_socket(base, sdk):
    p,tok,path = Raw(sdk, f'{base}/silent/{sdk}', timeout=90),Token(),f'/silent/{sdk}/x'
    threading.Thread(target=lambda: (poll(lambda: path in Faults.here), tok.cancel()), daemon=True).start()
    start = time.monotonic()
    with pytest.raises(Cancelled): list(p.stream([user('x')], tok=tok))
    assert time.monotonic()-start<SOON
    poll(lambda: path in Faults.gone)

def test_five_thousand_chunks_are_few_events_and_little_work():
    m = ScriptedProvider([[{'text':f'{i} '} for i in range(5000)]])
    cpu = time.process_time()
    evs = list(m.stream([user('x')]))
    assert time.process_time()-cpu<5   # the benchmark looks closer
    assert ''.join(d for k,d in evs if k=='text')==''.join(f'{i} ' for i in range(5000))
    assert len(evs)<40

def test_first_text_does_not_wait_and_later_text_waits_at_most_the_window():
    class Slow(Provider):
        async def run(self, req, emit):
            for i,s in enumerate('abcdefgh'):
                sent.append(time.monotonic()); emit('text', s)
                while len(got)<=i: await asyncio.sleep(.01) # nothing comes that could push it
            emit('done', assistant([text('abcdefgh')]))
    sent,got = [],[]
    for k,_ in Slow(ModelSpec('s', 's', 's')).stream([user('x')]):
        if k=='text': got.append(time.monotonic())
    waits = [g-s for g,s in zip(got, sent)]
    assert len(got)==8 and min(waits[1:])<.12, waits # one that the machine held up says nothing

def test_cancelled_requests_leave_no_task_and_no_thread():
    async def tasks(): return len(asyncio.all_tasks())
    count = lambda: (asyncio.run_coroutine_threadsafe(tasks(), provider_loop()).result(5), threading.active_count())
    before = count()
    for _ in range(100):
        tok = Token()
        it = ScriptedProvider([[{'text':'a'}, {'sleep':60}]]).stream([user('x')], tok=tok)
        next(it); tok.cancel()
        with pytest.raises(Cancelled): next(it)
    poll(lambda: all(b<=a for a,b in zip(before, count())))

# ---------------------------------------------------------------- properties
events = st.lists(st.tuples(st.sampled_from(['text','think','call']), st.text('ab', max_size=3)), max_size=30)

@wide(40, 400, events, st.integers(0, 30))
def test_a_pipe_keeps_every_event_in_order(evs, pre):
    p = Pipe(.001)
    for e in evs[:pre]: p.put(*e)
    t = threading.Thread(target=lambda: ([p.put(*e) for e in evs[pre:]], p.put('done', '')), daemon=True); t.start()
    got = []
    while (e := p.get())[0]!='done': got.append(e)
    def flat(es): return [(k,c) for k,s in es for c in (s if k!='call' else [s])]
    assert flat(got)==flat(evs)
    assert all(s for k,s in got if k!='call')

ids = st.sampled_from(['t1','t2','a b','',None])
part = st.one_of(st.sampled_from(['', ' \n', 'hi']).map(text), st.sampled_from(['','hm']).map(thinking), st.just(thinking('', 'sig')),
    st.builds(call, ids, st.sampled_from(['ls','my tool','']), st.sampled_from([{}, {'a':1}])))
res = st.builds(lambda i,t: result(dict(id=i, name='ls'), t), ids, st.sampled_from(['ok','']))
msg = st.one_of(st.sampled_from(['','go',' ']).map(user), st.lists(part, max_size=4).map(assistant), st.lists(res, max_size=3).map(results))

@wide(150, 2000, st.lists(msg, max_size=8))
def test_a_paired_history_is_legal_whatever_happened_before(hist):
    old = deepcopy(hist)
    p = pair(hist)
    assert hist==old and pair(p)==p
    seen = set()
    for i,m in enumerate(p):
        if m['role']=='tool':
            assert p[i-1]['role']=='assistant' and [r['id'] for r in m['results']]==[c['id'] for c in calls(p[i-1])]
            continue
        assert m['content'] and all(o['text'].strip() for o in m['content'] if o['type']=='text')
        if m['role']=='assistant' and calls(m):
            assert p[i+1]['role']=='tool'
            for c in calls(m):
                assert c['id'] and c['id'] not in seen and c['name'] and ' ' not in c['id']+c['name']
                seen.add(c['id'])
