"An answer that breaks off anywhere: half a call never runs, shown words are never shown again, and the next prompt works."
import asyncio, json, socket, socketserver, struct, threading
from contextlib import closing
from urllib.parse import urlsplit
import pytest
from width import few_or_many
from ramabana_acp.agent.turn import Turn
from ramabana_acp.core import TurnFailed
from ramabana_acp.models.messages import calls, sendable, text_of, user
from ramabana_acp.models.errors import ModelError
from ramabana_acp.models.provider import mk_provider
from ramabana_acp.models.rules import breaches
from ramabana_acp.models.specs import ModelSpec
from ramabana_acp.models.sse import pump
from ramabana_acp.testing.models import FakeModel
from ramabana_acp.tools.registry import tools_for
from ramabana_acp.workspace.host import WorkspaceHost

SAID,THOUGHT,FILES = 'I write bötti.','hm 😀',{'a.txt':'eins\n', 'b.txt':'zwei “2”\n'}
ANSWER = [dict(think=THOUGHT, signature='seal'), dict(text=SAID[:7]), dict(text=SAID[7:]), *(dict(tool='create_file', id=f't{i}', args=dict(path=k, text=v)) for i,(k,v) in enumerate(FILES.items()))]
LAST = [dict(text='Both are there.')]
PATHS = dict(messages=('anthropic', '/v1/messages'), chat=('openai', '/v1/chat/completions'), responses=('responses', '/v1/responses'))
every = pytest.mark.parametrize('dialect', PATHS)

@pytest.fixture(autouse=True)
def no_pauses(monkeypatch): monkeypatch.setattr('ramabana_acp.models.provider.pause', lambda n, after=None: 0)

def recorded(dialect, *answers):
    "What a server of `dialect` sends for each of `answers`, from the status line to the last byte, as it came over the wire"
    ask = json.dumps(dict(model='m', stream=True, max_tokens=99, messages=[dict(role='user', content='hi')], input=[dict(type='message', role='user', content='hi')])).encode()
    res = []
    with FakeModel(answers, strict=False) as m:
        o = urlsplit(m.base)
        for _ in answers:
            with closing(socket.create_connection((o.hostname, o.port), 10)) as s:
                s.sendall(b'POST %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b'%(PATHS[dialect][1].encode(), len(ask), ask))
                b = b''
                while not b.endswith(b'0\r\n\r\n') and (more := s.recv(1<<16)): b += more
                res.append(b)
    return res

def unchunked(b):
    "The body of a recorded answer"
    b,res = b.partition(b'\r\n\r\n')[2],b''
    while b:
        n,_,b = b.partition(b'\r\n')
        n = int(n, 16)
        if not n: break
        res,b = res+b[:n],b[n+2:]
    return res

class Seen:
    "What a person sees of a turn, by message"
    def __init__(self): self.text,self.thought = {},{}
    def think(self, s, mid):
        if not s.endswith(').\n'): self.thought[mid] = self.thought.get(mid, '')+s
    def run(self, t):
        try:
            for c in t.run(): self.text[c.mid] = self.text.get(c.mid, '')+c
        except TurnFailed as e: return e.data['kind']
        return t.stop_reason

def turn(provider, history, root):
    "One turn in folder `root`: how it ended, and what was seen"
    host,seen = WorkspaceHost([root]),Seen()
    t = Turn(provider, history, tools_for(host, web=False), host, on_thought=seen.think)
    host.tok = t.tok
    return seen.run(t),seen

def judge(n, end, seen, h, root):
    "Whether a turn whose first answer was cut at `n` ran its calls; it has to run all or none"
    files = {p.name:p.read_text() for p in root.iterdir()}
    whole = files==FILES
    assert whole or not files, (n, files)
    assert end==('end_turn' if whole else 'cut'), (n, end)
    first = [s for s in seen.text.values() if s!=LAST[0]['text']]
    assert len(first)<=1 and all(SAID.startswith(s) for s in first), (n, seen.text)
    assert len(seen.thought)<=1 and all(THOUGHT.startswith(s) for s in seen.thought.values()), (n, seen.thought)
    if whole: assert [*seen.text.values()]==[SAID,LAST[0]['text']], (n, seen.text)
    else: assert not any(calls(m) for m in h) and [text_of(m) for m in h[1:]]==[s for s in seen.text.values() if s.strip()], (n, h)
    return whole

class Body:
    "A response that is `b` and then nothing"
    def __init__(self, b): self.b = b
    async def aiter_bytes(self): yield self.b
    async def aclose(self): pass

def outcomes(p, answer):
    "All that can come of `answer` cut at a byte: the first and the last byte of each"
    async def play(n):
        out = []
        try: await pump(Body(answer[:n]), p.reply(lambda *e: out.append(e)), lambda *e: out.append(e))
        except ModelError as e: out.append((e.kind, str(e)))
        return repr(out)
    async def every():
        res = {}
        for n in range(len(answer)+1): res.setdefault(await play(n), []).append(n)
        return res
    return sorted({n for ns in asyncio.run(every()).values() for n in (ns[0], ns[-1])})

@every
def test_an_answer_cut_at_every_byte_runs_all_of_its_calls_or_none_and_repeats_nothing(dialect, tmp_path):
    answer,last = map(unchunked, recorded(dialect, ANSWER, LAST))
    P = type(mk_provider(s := ModelSpec('x/m', 'x', 'm', api=PATHS[dialect][0])))
    class Cut(P):
        "The provider, whose first answer breaks off"
        async def run(self, req, emit):
            self.asked = getattr(self, 'asked', 0)+1
            b = answer[:n] if self.asked==1 else last if req.history[-1]['role']=='tool' else answer
            await pump(Body(b), self.reply(emit), emit)
    ran,at = [],outcomes(P(s), answer)
    for n in at:
        h,root = [user('go')],tmp_path/f'n{n}'
        root.mkdir()
        end,seen = turn(Cut(s), h, root)
        if judge(n, end, seen, h, root): ran.append(n)
        assert sendable(h)[-1]['role']!='assistant'
    assert len(at)>10 and 0 in ran and len(answer) in ran and len(ran)<len(at)

# ---------------------------------------------------------------- over a socket

class Cutter(socketserver.ThreadingTCPServer):
    "A server whose first answer is cut at `n`; later ones are whole"
    allow_reuse_address = daemon_threads = True
    def __init__(self, answer, last, n, how): self.answer,self.last,self.n,self.how,self.asked = answer,last,n,how,[]; super().__init__(('127.0.0.1', 0), Sender)
    def __enter__(self): threading.Thread(target=self.serve_forever, args=(.01,), daemon=True).start(); return self
    def __exit__(self, *_): self.shutdown(); self.server_close()
    @property
    def base(self): return f'http://127.0.0.1:{self.server_address[1]}'

class Sender(socketserver.StreamRequestHandler):
    def handle(self):
        n,srv = 0,self.server
        while (l := self.rfile.readline()) not in (b'\r\n',b''):
            if l.lower().startswith(b'content-length:'): n = int(l.split(b':')[1])
        body = self.rfile.read(n)
        srv.asked.append(json.loads(body))
        if len(srv.asked)>1: self.wfile.write(srv.last if b'"t0"' in body or b'and now?' in body else srv.answer); return
        self.wfile.write(srv.answer[:srv.n]); self.wfile.flush()
        if srv.how=='reset': self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))

@few_or_many(3, 24)
@pytest.mark.parametrize('how', ['closed','reset'])
@every
def test_an_answer_cut_on_the_wire_runs_all_of_its_calls_or_none_and_the_next_prompt_works(dialect, how, n, tmp_path):
    answer,last = recorded(dialect, ANSWER, LAST)
    api,head,size = PATHS[dialect][0],answer.index(b'\r\n\r\n')+4,len(answer)
    for at in sorted({0, 5, head-3, head, *range(head+1, size, (size-head)//n), size-3, size-1, size}):
        h,root = [user('go')],tmp_path/f'n{at}'
        root.mkdir()
        with Cutter(answer, last, at, how) as srv:
            p = mk_provider(ModelSpec('x/m', 'x', 'm', api=api, base_url=srv.base+('' if api=='anthropic' else '/v1')))
            end,seen = turn(p, h, root)
            judge(at, end, seen, h, root)
            h.append(user('and now?'))
            end,seen = turn(p, h, root)
            assert (end, [*seen.text.values()])==('end_turn', [LAST[0]['text']]), at
            assert not [b for q in srv.asked for b in breaches(dialect, q)], at
