"Model servers that misbehave: each reported fault as a test, in both dialects where both can have it."
import asyncio, json, threading, time
from copy import deepcopy
import pytest
from hypothesis import strategies as st
from width import examples, few_or_many, given
from ramabana_acp.core import Cancelled, Token, jdumps
from ramabana_acp.models.claude import ClaudeProvider, ClaudeReply, claude_body, mark, to_messages
from ramabana_acp.models.messages import assistant, call, calls, pair, result, results, text, text_of, thinking, user
from ramabana_acp.models.openai import ChatReply, OpenAIProvider, chat_body, to_chat
from ramabana_acp.models.errors import ModelError
from ramabana_acp.models.responses import ResponsesProvider
from ramabana_acp.models.specs import ModelSpec
from ramabana_acp.models.sse import Sent, pump
from ramabana_acp.testing.models import Chat, FakeModel, Messages
from asking import chunk, dumps, hi, no_long_pauses # noqa: F401 (a fixture)

PROVIDERS = dict(chat=OpenAIProvider, claude=ClaudeProvider, responses=ResponsesProvider)
both,every = pytest.mark.parametrize('dialect', ['chat','claude']),pytest.mark.parametrize('dialect', PROVIDERS)

# ---------------------------------------------------------------- exact bodies of streams

def claude(*events): return ''.join(f"event: {e['type']}\ndata: {dumps(e)}\n\n" for e in events)
def chat(*chunks, done=True): return ''.join(f'data: {dumps(c)}\n\n' for c in chunks)+('data: [DONE]\n\n' if done else '')

def start():
    return dict(type='message_start', message=dict(id='msg_1', type='message', role='assistant', content=[], model='m', stop_reason=None,
        stop_sequence=None, usage=dict(input_tokens=10, output_tokens=1)))

def opened(i, **block): return dict(type='content_block_start', index=i, content_block=block)
def piece(i, type, **d): return dict(type='content_block_delta', index=i, delta=dict(type=type, **d))
def closed(i): return dict(type='content_block_stop', index=i)
def end(why): return dict(type='message_delta', delta=dict(stop_reason=why, stop_sequence=None), usage=dict(output_tokens=5)),dict(type='message_stop')
def said(i, s): return opened(i, type='text', text=''),piece(i, 'text_delta', text=s),closed(i)
def used(i, name, *pieces): return opened(i, type='tool_use', id='toolu_1', name=name, input={}),*(piece(i, 'input_json_delta', partial_json=p) for p in pieces),closed(i)
def part(**kw): return chunk(tool_calls=[kw])

# ---------------------------------------------------------------- asking

def ask(m, dialect, history=hi, id='m', tok=None, shown=None, **kw):
    "The message that answers `history`; what is shown on the way is added to `shown`"
    p = PROVIDERS[dialect](ModelSpec(f'fake/{id}', 'fake', id, base_url=m.base, **kw))
    for ev in p.stream(history, tok=tok):
        if shown is not None: shown.append(ev)
    assert ev[0]=='done'
    return ev[1]

def goes_on(m, dialect, msg):
    "The next request after `msg`, whose calls are answered as the registry would; a strict server has taken it"
    rs = [result(c, f"ERROR: {c['bad']}" if c.get('bad') else 'done', ok=not c.get('bad')) for c in calls(msg)]
    ask(m, dialect, [*hi, msg, *([results(rs)] if rs else [])])
    return m.requests[-1].body['messages']

def one(dialect, body, **kw):
    "The message of a server that sends exactly `body`"
    with FakeModel([[dict(raw=body, **kw)]]) as m: return ask(m, dialect)

def got(msg): return [(c['name'], c['args'], c.get('bad')) for c in calls(msg)]

# ---------------------------------------------------------------- C118, C119: arguments

@pytest.mark.parametrize('pieces', [(), ('',), ('  ',)])
def test_C118_a_claude_tool_without_arguments_runs_with_none(pieces):
    with FakeModel([[dict(raw=claude(start(), *used(0, 'list_files', *pieces), *end('tool_use')))]]) as m:
        msg = ask(m, 'claude')
        assert got(msg)==[('list_files', {}, None)]
        assert goes_on(m, 'claude', msg)[1]['content'][0]['input']=={}

@pytest.mark.parametrize('fn', [{}, dict(arguments=''), dict(arguments=None), dict(arguments='  '), dict(arguments={})])
def test_C118_a_chat_tool_without_arguments_runs_with_none(fn):
    with FakeModel([[dict(raw=chat(part(index=0, id='call_a', type='function', function=dict(name='list_files', **fn)), chunk('tool_calls')))]]) as m:
        msg = ask(m, 'chat')
        assert got(msg)==[('list_files', {}, None)]
        assert goes_on(m, 'chat', msg)[1]['tool_calls'][0]['function']['arguments']=='{}'

C119 = ['{"pa', 'th":"a', '.txt","text":"\\ud8', '3d\\ude', '00 \\', 'n\\u00e', '9"', '}']
C119_chat = chat(part(index=0, id='call_a', type='function', function=dict(name='create_file', arguments='')),
    *(part(index=0, function=dict(arguments=p)) for p in C119), chunk('tool_calls'))
C119_claude = claude(start(), *used(0, 'create_file', *C119), *end('tool_use'))

@pytest.mark.parametrize('by', [0, 1])
@pytest.mark.parametrize('dialect,body', [('claude', C119_claude), ('chat', C119_chat)])
def test_C119_arguments_may_be_torn_anywhere(dialect, body, by):
    assert got(one(dialect, body, by=by))==[('create_file', dict(path='a.txt', text='😀 \né'), None)]

@both
def test_C119_text_may_hold_any_line_separator(dialect):
    s = 'a\u2028b\x85c\x0bd\x1ee'
    with FakeModel([[dict(text=s)]]) as m: assert text_of(ask(m, dialect))==s

# ---------------------------------------------------------------- C121, C122: which call a piece belongs to

def test_C121_calls_without_index_with_dict_arguments_and_stop_as_the_reason_all_run():
    msg = one('chat', chat(part(id='call_a', function=dict(name='view_file', arguments=dict(path='a'))),
        part(id='call_b', function=dict(name='view_file', arguments='{"path":"b"}')), chunk('stop')))
    assert (msg['stop'], got(msg))==('calls', [('view_file', dict(path='a'), None), ('view_file', dict(path='b'), None)])

def test_C121_every_call_numbered_zero_is_still_a_call_of_its_own():
    msg = one('chat', chat(*(part(index=0, id=f'call_{c}', function=dict(name='view_file', arguments=dumps(dict(path=c)))) for c in 'ab'), chunk('stop')))
    assert [c['args'] for c in calls(msg)]==[dict(path='a'), dict(path='b')]

def test_C121_calls_with_neither_index_nor_id_get_ids_and_all_run():
    msg = one('chat', chat(*(part(index=None, id=None, function=dict(name='view_file', arguments=dumps(dict(path=c)))) for c in 'ab'), chunk('tool_calls')))
    assert [c['args'] for c in calls(msg)]==[dict(path='a'), dict(path='b')] and len({c['id'] for c in calls(msg)}-{''})==2

def test_C121_a_claude_call_runs_although_the_reason_is_end_turn():
    assert one('claude', claude(start(), *used(0, 'ls'), *end('end_turn')))['stop']=='calls'

def test_C122_pieces_without_id_continue_the_call_they_are_numbered_for():
    msg = one('chat', chat(part(index=0, id='call_a', type='function', function=dict(name='view_file', arguments='')),
        part(index=0, function=dict(arguments='{"pa')), part(index=1, id='call_b', type='function', function=dict(name='view_file', arguments='{"path":')),
        part(index=0, id='', function=dict(arguments='th":"a"}')), part(index=1, id=None, function=dict(name=None, arguments='"b"}')), chunk('tool_calls')))
    assert [(c['id'], c['args']) for c in calls(msg)]==[('call_a', dict(path='a')), ('call_b', dict(path='b'))]

def test_C122_pieces_of_two_claude_blocks_may_alternate():
    a,b = used(0, 'ls', '{"path":', '"a"}'),used(1, 'cat', '{"path":', '"b"}')
    msg = one('claude', claude(start(), a[0], b[0], a[1], b[1], b[2], a[2], closed(1), closed(0), *end('tool_use')))
    assert got(msg)==[('ls', dict(path='a'), None), ('cat', dict(path='b'), None)]

def test_C122_an_id_that_is_said_again_with_each_piece_is_one_call():
    msg = one('chat', chat(*(part(id='call_a', function=dict(name='ls', arguments=p)) for p in ('{"path"', ':"a"', '}')), chunk('tool_calls')))
    assert got(msg)==[('ls', dict(path='a'), None)]

# ---------------------------------------------------------------- C124, C134: arguments that are no object

@both
@pytest.mark.parametrize('args', ['{"path":"a.txt","text":"un', '[1]', 'null', '"x"', '{"a":1,"a":2}', '{"a":tru, x', '{"a":NaN}', '['*20_000])
def test_C124_arguments_that_are_no_object_are_told_to_the_model_and_never_stored(dialect, args):
    with FakeModel([[dict(tool='create_file', id='call_a', args=args)]]) as m:
        msg = ask(m, dialect)
        (name,kept,bad), = got(msg)
        assert (msg['stop'], name, kept)==('calls', 'create_file', {}) and 'arguments' in bad
        req = goes_on(m, dialect, msg)
        assert 'ERROR: the arguments' in dumps(req)

def test_C124_the_reported_body():
    msg = one('chat', chat(part(index=0, id='call_a', type='function', function=dict(name='create_file', arguments='{"path":"a.txt","text":"un')), chunk('tool_calls')))
    assert 'not valid JSON' in calls(msg)[0]['bad']

def test_C134_broken_arguments_do_not_end_a_claude_turn_and_the_text_stays():
    body = claude(start(), *said(0, 'I list'), *used(1, 'list_files', '{"a":tru, x'), *end('tool_use'))
    with FakeModel([[dict(raw=body)]]) as m:
        shown = []
        msg = ask(m, 'claude', shown=shown)
        assert [s for k,s in shown if k=='text']==['I list'] and text_of(msg)=='I list'
        assert 'not valid JSON' in calls(msg)[0]['bad']
        assert goes_on(m, 'claude', msg)[2]['content'][0]['is_error'] is True
    assert got(one('claude', claude(start(), *used(0, 'list_files', '  '), *end('tool_use'))))==[('list_files', {}, None)]

# ---------------------------------------------------------------- C125: the output limit

@pytest.mark.parametrize('args', ['{"path":"a.txt","text":"half of th', '{"path":"a.txt","text":"ok"}', ''])
@both
def test_C125_a_call_that_the_output_limit_struck_never_runs(dialect, args):
    with FakeModel([[dict(text='writing'), dict(tool='create_file', id='toolu_1', args=args), dict(stop='length')]]) as m:
        msg = ask(m, dialect)
        assert (msg['stop'], text_of(msg), calls(msg)[0]['args'])==('length', 'writing', {}) and 'output limit' in calls(msg)[0]['bad']
        assert 'output limit' in dumps(goes_on(m, dialect, msg))

def test_C125_the_reported_bodies():
    half = claude(start(), *said(0, 'writing'), *used(1, 'create_file', '{"path":"a.txt","text":"half of th'), *end('max_tokens'))
    whole = claude(start(), *used(0, 'create_file', '{"path":"a.txt","text":"ok"}'), *end('max_tokens'))
    for body in (half, whole): assert 'output limit' in calls(one('claude', body))[0]['bad']

@both
def test_C125_a_call_before_the_one_that_was_struck_is_whole(dialect):
    two = [dict(tool='ls', id='t1', args=dict(path='.')), dict(tool='create_file', id='t2', args='{"path":"a'), dict(stop='length')]
    with FakeModel([two]) as m: assert [bool(c.get('bad')) for c in calls(ask(m, dialect))]==[False, True]

# ---------------------------------------------------------------- C130, C131: thinking

def test_C130_a_thought_that_was_cut_off_is_left_out_of_the_next_request():
    half = claude(start(), opened(0, type='thinking', thinking='', signature=''), piece(0, 'thinking_delta', thinking='half'))
    with FakeModel([[dict(raw=half), dict(sleep=30)]]) as m:
        tok,shown = Token(),[]
        with pytest.raises(Cancelled):
            p = ClaudeProvider(ModelSpec('fake/m', 'fake', 'm', base_url=m.base))
            for ev in p.stream([user('a')], tok=tok): shown.append(ev); tok.cancel()
        assert shown==[('think','half')]
        ask(m, 'claude', [user('a'), assistant([thinking('half')], 'cancelled'), user('b')])
        assert [(q['role'], [b['text'] for b in q['content']]) for q in m.requests[1].body['messages']]==[('user', ['a','b'])]

def test_C130_thinking_survives_a_visit_to_another_provider():
    with FakeModel([[dict(think='hm', signature='seal'), dict(text='one')], [dict(think='foreign'), dict(text='two')]]) as m:
        h = [user('a'), ask(m, 'claude', [user('a')]), user('b')]
        h += [ask(m, 'chat', h), user('c')]
        assert 'reasoning_content' not in m.requests[1].body['messages'][1]
        ask(m, 'claude', h)
        sent = m.requests[2].body['messages']
        assert [[b['type'] for b in q['content']] for q in sent[1::2]]==[['thinking','text'], ['text']]
        assert sent[1]['content'][0]==dict(type='thinking', thinking='hm', signature='seal')

C131 = chat(chunk(role='assistant', content=None, reasoning_content='let me '), chunk(reasoning_content='look'),
    part(index=0, id='call_1', type='function', function=dict(name='view_file', arguments='{"path":"a"}')), chunk('tool_calls'))

@pytest.mark.parametrize('id,back', [('deepseek-v4-pro', 'let me look'), ('some-model', None)])
def test_C131_reasoning_goes_back_to_the_server_that_wants_it_and_to_no_other(id, back):
    with FakeModel([[dict(raw=C131)]]) as m:
        shown = []
        msg = ask(m, 'chat', id=id, shown=shown)
        assert ''.join(s for k,s in shown if k=='think')=='let me look'
        ask(m, 'chat', [*hi, msg, results([result(calls(msg)[0], 'x')])], id=id)
        sent = m.requests[1].body['messages'][1]
        assert sent.get('reasoning_content')==back and ('reasoning_content' in sent)==bool(back)
        assert sent['tool_calls'][0]['id']=='call_1' and not sent['content']

# ---------------------------------------------------------------- C133: the end

C133 = dict(
    claude_text=('claude', claude(start(), *said(0, 'half an ans')[:2])),
    claude_call=('claude', claude(start(), *used(0, 'run_shell', '{"command":"touch x"}')[:-1])),
    claude_no_stop=('claude', claude(start(), *said(0, 'half an ans'), end('end_turn')[0])),
    chat_text=('chat', chat(chunk(content='half an ans'), done=False)),
    chat_call=('chat', chat(part(index=0, id='c', function=dict(name='run_shell', arguments='{"command":"touch x"}')), done=False)))

@pytest.mark.parametrize('dialect,body', C133.values(), ids=C133)
@pytest.mark.parametrize('how', [[], [dict(cut=True)], [dict(cut='fin')]], ids=['clean', 'reset', 'fin'])
def test_C133_a_stream_that_just_ends_is_no_answer_and_is_not_shown_twice(dialect, body, how):
    with FakeModel([[dict(raw=body), *how]]) as m:
        shown = []
        with pytest.raises(ModelError) as e: ask(m, dialect, shown=shown)
        assert e.value.kind=='cut' and e.value.code==-32603 and len(m.requests)==1
        assert 'done' not in [k for k,_ in shown] and sum(k=='text' for k,_ in shown)<=1

@both
def test_C133_a_stream_that_ends_before_anything_was_shown_is_tried_again(dialect):
    with FakeModel([[dict(close=True)], [dict(text='ok')]]) as m:
        shown = []
        assert text_of(ask(m, dialect, shown=shown))=='ok' and shown[0][0]=='retry'

@pytest.mark.parametrize('body', [chat(chunk(content='ok'), chunk('stop'), done=False), chat(chunk(content='ok')), 'data: '+dumps(chunk('stop', content='ok'))])
def test_C133_a_chat_answer_that_said_its_end_in_any_way_is_whole(body):
    msg = one('chat', body)
    assert (text_of(msg), msg['stop'])==('ok', 'end')

def test_C133_a_chat_server_that_never_hangs_up_after_its_last_word_does_not_hold_the_turn():
    with FakeModel([[dict(raw=chat(chunk(content='ok'), chunk('stop'), done=False)), dict(sleep=90)]]) as m:
        t = time.monotonic()
        assert text_of(ask(m, 'chat'))=='ok' and time.monotonic()-t<60

class Body:
    "A response that is `body` and then nothing"
    def __init__(self, body): self.body = body
    async def aiter_bytes(self): yield self.body
    async def aclose(self): pass

SCRIPT = [dict(think='hm'), dict(text='I lööööok.'), dict(tool='ls', id='t1', args=dict(path='é')), dict(tool='cat', id='t2', args={})]
BODIES = {}
for name,d in dict(chat=Chat({}, 40), claude=Messages({}, 40)).items():
    BODIES[name] = d.start()+b''.join(getattr(d, next(k for k in e if k in ('think','text','tool')))(e) for e in SCRIPT)+d.finish('calls')

@both
def test_C133_cut_at_every_byte_an_answer_is_whole_or_an_error_and_never_says_anything_twice(dialect):
    Reply,body = dict(chat=ChatReply, claude=ClaudeReply)[dialect],BODIES[dialect]
    async def play(n):
        out = []
        try: await pump(Body(body[:n]), Reply(lambda *e: out.append(e)), lambda *e: out.append(e))
        except ModelError as e: assert e.kind=='cut'
        return out
    async def every(): return [await play(n) for n in range(len(body)+1)]
    outs = asyncio.run(every())
    whole = outs[-1]
    for n,out in enumerate(outs):
        assert out==whole or out==whole[:len(out)] or out[:-1]==whole[:-1], n
        if out and out[-1][0]=='done': assert out[-1][1]['content']==whole[-1][1]['content'], n
    assert [k for k,_ in whole]==['think','text','call','call','done']

# ---------------------------------------------------------------- refusals of the server, and retries

@both
@pytest.mark.parametrize('status,body,kind', [
    (401, None, 'auth.rejected'), (403, '{"error":{"message":"insufficient balance for key sk-abc123456789"}}', 'quota'), (402, None, 'quota'),
    (400, 'prompt is too long: 214676 tokens > 200000 maximum', 'context_overflow'), (400, None, 'bad_request'), (404, None, 'bad_request'), (422, None, 'bad_request')])
def test_C041_what_can_never_work_is_not_tried_again_and_tells_no_secret(dialect, status, body, kind):
    with FakeModel([[dict(http=status, **(dict(body=body) if body else {}))]]) as m:
        with pytest.raises(ModelError) as e: ask(m, dialect)
        assert (e.value.kind, e.value.status, len(m.requests))==(kind, status, 1) and 'abc123' not in str(e.value)

@both
def test_C136_the_server_says_how_long_to_wait_and_is_believed(dialect):
    wait = {'retry-after':'0.4'}
    with FakeModel([[dict(http=429, headers=wait)], [dict(http=529)], [dict(text='ok')]]) as m:
        assert text_of(ask(m, dialect))=='ok'
        a,b,c = [r.at for r in m.requests]
        assert b-a>=.4

@both
def test_C136_an_hour_is_not_waited(dialect):
    with FakeModel([[dict(http=429, headers={'retry-after':'3600'})]]) as m:
        with pytest.raises(ModelError) as e: ask(m, dialect)
        assert (e.value.kind, len(m.requests))==('rate_limit', 1)

@both
def test_an_overload_inside_the_stream_is_a_failure_that_can_pass(dialect):
    with FakeModel([[dict(error='overloaded_error', message='Overloaded')], [dict(text='ok')], [dict(text='half'), dict(error='overloaded_error')]]) as m:
        assert text_of(ask(m, dialect))=='ok'
        with pytest.raises(ModelError) as e: ask(m, dialect)
        assert (e.value.kind, len(m.requests))==('cut', 3)

def html(s='<html><title>Welcome</title></html>', **kw): return [dict(headers={'content-type':'text/html'}), dict(raw=s, **kw)]
def plain(o): return [dict(headers={'content-type':'application/json'}), dict(raw=dumps(o))]
def err(type, msg): return dict(type='error', error=dict(type=type, message=msg))

FAULTS = { # what the server does, the kind, the status, words of the message, and how often it is asked
    'a page instead of a stream': (html(), 'protocol', None, 'base URL', 1),
    'a page in pieces': (html(' \n<!doctype html><p>x', by=1), 'protocol', None, 'base URL', 1),
    'an event that is no JSON': ([dict(raw='data: {"a": broken}\n\n')], 'protocol', None, 'not JSON', 1),
    'an event that is no object': ([dict(raw='data: 7\n\n')], 'protocol', None, '7', 1),
    'a redirect': ([dict(http=302, headers={'location':'http://127.0.0.1:1/login?key=x'})], 'protocol', 302, 'sends us on to http://127.0.0.1:1/login;', 1),
    'a redirect that keeps the method': ([dict(http=307, headers={'location':'/elsewhere'})], 'protocol', 307, '/elsewhere', 1),
    'an error with status 200': (plain(err('invalid_request_error', 'no such thing')), 'bad_request', 400, 'no such thing', 1),
    'an overload with status 200': (plain(err('overloaded_error', 'too many')), 'overloaded', 529, 'too many', 5),
    'nothing at all': ([dict(raw='')], 'cut', None, 'ended early', 5),
    'only comments': ([dict(raw=': ping\n\n: ping\n\n')], 'cut', None, 'ended early', 5),
    'a reset before the first word': ([dict(raw=': ping\n\n'), dict(cut=True)], 'network', None, '', 5),
    'a close before the first word': ([dict(raw=': ping\n\n'), dict(cut='fin')], 'cut', None, '', 5),
    'a refusal in mid-stream': ([dict(text='half'), dict(error='invalid_request_error', message='bad picture')], 'bad_request', 400, 'bad picture', 1),
    'an overload in mid-stream': ([dict(text='half'), dict(error='overloaded_error', message='Overloaded')], 'cut', 529, 'Overloaded', 1),
    'a page in mid-stream': ([dict(text='half'), dict(raw='<html>')], 'cut', None, '', 1),
    'a refused key': ([dict(http=401)], 'auth.rejected', 401, '', 1), 'no money': ([dict(http=402)], 'quota', 402, '', 1),
    'a forbidden model': ([dict(http=403)], 'auth.rejected', 403, '', 1), 'a bad request': ([dict(http=400)], 'bad_request', 400, '', 1),
    'a quota told as a rate limit': ([dict(http=429, body=dict(error=dict(message='You exceeded your current quota', code='insufficient_quota')))], 'quota', 429, 'quota', 1),
    'a request that is too large': ([dict(http=413)], 'context_overflow', 413, '', 1), 'no such model': ([dict(http=404)], 'bad_request', 404, '', 1)}

@every
@pytest.mark.parametrize('fault', FAULTS)
def test_a_fault_of_the_server_has_a_name_and_the_next_prompt_works(dialect, fault):
    events,kind,status,words,n = FAULTS[fault]
    with FakeModel([events]*n+[[dict(text='fine')]]) as m:
        with pytest.raises(ModelError) as e: ask(m, dialect)
        assert (e.value.kind, e.value.status, len(m.requests))==(kind, status, n), str(e.value)
        assert words in str(e.value) and '\n' not in str(e.value) and 'Errno' not in str(e.value)
        assert text_of(ask(m, dialect))=='fine'

@every
@pytest.mark.parametrize('status', [408,409,429,500,502,503,504,520,529])
def test_what_may_pass_is_tried_again_and_says_so(dialect, status):
    with FakeModel([[dict(http=status)], [dict(text='ok')]]) as m:
        shown = []
        assert text_of(ask(m, dialect, shown=shown))=='ok' and len(m.requests)==2
        assert [(d['attempt'], d['status']) for k,d in shown if k=='retry']==[(1, status)]

@every
def test_attempts_are_bounded_by_number_and_by_time(dialect):
    with FakeModel([[dict(http=529)]]*9) as m:
        with pytest.raises(ModelError) as e: ask(m, dialect)
        assert (e.value.kind, len(m.requests))==('overloaded', 5)
        p = PROVIDERS[dialect](ModelSpec('fake/m', 'fake', 'm', base_url=m.base))
        p.patience = 0
        with pytest.raises(ModelError): list(p.stream(hi))
        assert len(m.requests)==6

@every
def test_a_redirect_is_not_followed_so_the_key_stays_here(dialect):
    with FakeModel() as other, FakeModel([[dict(http=307, headers={'location':f'{other.base}/v1/messages'})]]) as m:
        with pytest.raises(ModelError, match='base URL'): ask(m, dialect)
        assert len(m.requests)==1 and not other.requests

@every
@pytest.mark.parametrize('kind', ['application/json','text/plain','text/html',''])
def test_a_stream_is_a_stream_whatever_its_content_type_says(dialect, kind):
    with FakeModel([[dict(headers={'content-type':kind}), dict(think='hm'), dict(text='ok')]]) as m: assert text_of(ask(m, dialect))=='ok'

@every
def test_a_slow_drip_is_read_to_its_end(dialect):
    with FakeModel([[o for c in 'drip' for o in (dict(text=c), dict(ping=True), dict(sleep=.05))]]) as m: assert text_of(ask(m, dialect))=='drip'

@every
def test_calls_that_share_an_id_go_back_under_two(dialect):
    with FakeModel([[dict(tool='ls', id='t1', args={}), dict(tool='cat', id='t1', args={})], [dict(text='ok')]]) as m:
        msg = ask(m, dialect)
        if [c['name'] for c in calls(msg)]==['ls','cat']: assert text_of(ask(m, dialect, [*hi, msg, results([result(c, c['name']) for c in calls(msg)])]))=='ok'
        else: assert dialect=='chat', msg # one id without an index is one call

@both
def test_nobody_listening_is_a_network_error(dialect):
    with FakeModel() as m: pass
    p = PROVIDERS[dialect](ModelSpec('fake/m', 'fake', 'm', base_url=m.base))
    p.retries = 0
    with pytest.raises(ModelError) as e: list(p.stream(hi))
    assert e.value.kind=='network' and 'cannot be reached' in str(e.value)

@both
def test_comments_and_pings_are_nothing_and_usage_is_counted_once(dialect):
    use = dict(input=7, output=5, cache_read=30)
    with FakeModel([[dict(ping=True), dict(text='a'), dict(ping=True), dict(usage=use)]]) as m: msg = ask(m, dialect)
    assert msg['content']==[text('a')] and {k:msg['usage'][k] for k in use}==use

def test_chunks_without_choices_with_null_delta_and_content_as_a_list_are_taken():
    odd = [dict(choices=[]), dict(choices=None), dict(choices=[dict(index=0, delta=None, finish_reason=None)]), chunk(content=None, tool_calls=None),
        chunk(content=[dict(type='thinking', thinking=[dict(type='text', text='hm')]), dict(type='text', text='ok')]), chunk('stop')]
    assert one('chat', chat(*odd))['content']==[thinking('hm', field='thinking'), text('ok')]

def test_a_chat_server_that_does_not_stream_is_understood():
    whole = dict(choices=[dict(index=0, message=dict(role='assistant', content='ok'), finish_reason='stop')], usage=dict(prompt_tokens=3, completion_tokens=2))
    msg = one('chat', dumps(whole))
    assert (text_of(msg), msg['usage']['output'])==('ok', 2)

@both
def test_a_refusal_is_known_as_one(dialect):
    with FakeModel([[dict(text='I cannot'), dict(stop='refusal')]]) as m: assert ask(m, dialect)['stop']=='refusal'

def test_a_paused_claude_turn_goes_back_as_it_is():
    with FakeModel([[dict(text='wait'), dict(stop='pause_turn')], [dict(text='on')]]) as m:
        msg = ask(m, 'claude')
        assert msg['stop']=='pause' and text_of(ask(m, 'claude', [*hi, msg]))=='on'
        assert m.requests[1].body['messages'][-1]['role']=='assistant'

# ---------------------------------------------------------------- cancel

@both
@pytest.mark.parametrize('events', [[dict(silence=30)], [dict(sleep=30)], [dict(text='a'), dict(sleep=30)], [dict(http=429, headers={'retry-after':'30'})]],
    ids=['silent', 'before the first word', 'mid-stream', 'between two attempts'])
def test_cancel_ends_a_request_at_once_and_closes_its_socket(dialect, events):
    with FakeModel([events]) as m:
        tok,at = Token(),[]
        def stop():
            m.wait_requests(1); time.sleep(.05)
            at.append(time.monotonic()); tok.cancel()
        threading.Thread(target=stop, daemon=True).start()
        with pytest.raises(Cancelled): ask(m, dialect, tok=tok)
        assert time.monotonic()-at[0]<10 # of 30
        if 'http' not in events[0]: assert len(m.wait_closed(1))==1

@both
def test_a_connection_is_used_again(dialect):
    with FakeModel([[dict(text='a')]]*3) as m:
        socks,answer = set(),m.answer
        m.answer = lambda h,*a: (socks.add(h.client_address), answer(h, *a))
        for _ in range(3): ask(m, dialect)
        assert len(m.requests)==3 and len(socks)==1

# ---------------------------------------------------------------- what goes out

@both
def test_whatever_a_history_looks_like_a_strict_server_takes_it(dialect):
    c1,c2 = call('t1', 'ls', {}),call('t1', 'my tool', dict(path='\ud800'))
    png = b'\x89PNG\r\n\x1a\n'
    h = [user('go \udc80', [png]), assistant([text(''), c1, c2], 'cancelled'), user('  '), results([result(c1, '', media=user(media=[png])['content'])]),
        assistant([thinking('half')], 'cancelled'), user('on'), assistant([text('a'), thinking('x')], 'cut'), assistant([text('b')]), user('so?')]
    with FakeModel([[dict(text='ok')]]) as m: assert text_of(ask(m, dialect, h))=='ok'

def test_the_cached_prefix_of_a_claude_turn_survives_every_append():
    def bare(ms): return [[{k:v for k,v in b.items() if k!='cache_control'} for b in q['content']] for q in ms]
    with FakeModel([[dict(tool='ls', id=f't{i}', args={})] for i in range(6)]) as m:
        h = list(hi)
        for i in range(6):
            msg = ask(m, 'claude', h)
            h += [msg, results([result(c, f'r{i}') for c in calls(msg)])]
        bodies = [r.body['messages'] for r in m.requests]
    for a,b in zip(bodies, bodies[1:]):
        assert bare(b)[:len(a)]==bare(a)
        assert 'cache_control' in b[len(a)-1]['content'][-1], 'the end of the last request is still marked'

# ---------------------------------------------------------------- the same bytes, whatever was kept of the request before

png = user(media=[b'\x89PNG\r\n\x1a\n'])['content']
words = st.sampled_from(['', ' ', 'hi', '"messages":[', '\ud800', 'é\u2028', 'x'*99])
parts = st.one_of(words.map(text), st.builds(thinking, words), st.builds(thinking, words, st.just('seal')), st.just(thinking('', redacted='box')),
    st.builds(lambda s: thinking(s, field='reasoning_content'), words),
    st.builds(call, st.sampled_from(['t1','t2','a b']), st.sampled_from(['ls','my tool']), st.sampled_from([{}, {'a':[1, {'b':float('nan')}]}, {'p':'\udfff'}])))
def answers(m, pics): return [results([result(c, f"r{c['id']}", i%2==0, png if pics else ()) for i,c in enumerate(calls(m))])] if calls(m) else []
asked = st.builds(lambda s,pics: [user(s, png if pics else [])], words, st.booleans())
answered = st.builds(lambda ps,pics,full: [m := assistant(ps), *(answers(m, pics) if full else [])], st.lists(parts, max_size=3), st.booleans(), st.booleans())
ops = st.lists(st.tuples(st.sampled_from('+++++++-~^!'), st.lists(asked|answered, min_size=1, max_size=4).map(lambda o: sum(o, [])), st.integers(0, 10**6)), max_size=14)

def disturb(h, op, new, n):
    "The history `h` after `op`: longer, shorter, with a message that was replaced, or changed where it stands, or missing"
    if op=='+' or not h: return h+new
    i = n%len(h)
    if op=='-': return h[:i]
    if op=='~': return h[:i]+new[:1]+h[i+1:]
    if op=='!': return h[:i]+h[i+1:]
    if h[i]['role']=='tool': h[i]['results'][0]['text'] += '!'
    elif h[i]['content']: (p := h[i]['content'][n%len(h[i]['content'])]).update(dict(args={'z':n}) if p['type']=='call' else dict(text='new') if 'text' in p else dict(data=b'GIF89a', mime='image/gif'))
    return h

@few_or_many(15, 200)
@pytest.mark.parametrize('limit', [4<<20, 6000, 0])
@pytest.mark.parametrize('id', ['gpt-5.4','deepseek-v4','claude'])
def test_a_request_has_the_bytes_it_would_have_if_nothing_had_been_kept(id, limit, n):
    spec,kept = ModelSpec('m', 'x', id, accepts=('text','image')),[]
    tools = [dict(name='ls', description='List', input_schema=dict(type='object', properties={}))]
    mk,wire,end = (claude_body, lambda h: to_messages(h, spec), mark) if id=='claude' else (chat_body, lambda h: to_chat(h, spec), list)
    @examples(n)
    @given(st.integers(0, 8), ops, st.sampled_from(['','Be kind.']))
    def check(turns, ops, system):
        sent,h = Sent(limit),[m for i in range(turns) for m in (user(f'q{i}'), assistant([text('a')]))]
        for op,new,n in ops:
            h = disturb(h, op, deepcopy(new), n)
            p = pair(h)
            assert sent.body(mk(spec, [], system, tools), p, wire, end)==jdumps(mk(spec, p, system, tools)).encode()
            assert len(sent.json)+512*len(sent.had)<=limit
        kept.append(len(sent.had))
    check()
    assert not limit or sum(map(bool, kept))>len(kept)/5, 'hardly ever was anything kept, so nothing was shown'

def test_what_is_kept_grows_with_the_conversation_and_a_step_writes_only_its_end():
    spec,h,sent,wrote = ModelSpec('m', 'x', 'm'),[],Sent(),[]
    def wire(part): wrote.append(len(part)); return to_chat(part, spec)
    for i in range(120):
        c = call(f't{i}', 'ls', {})
        h += [user(f'q{i}'), assistant([c]), results([result(c, 'r')]), assistant([text('a')])]
        wrote.clear()
        sent.body(chat_body(spec, []), pair(h[:-1]), wire)
        assert max(wrote)<=12 and sum(wrote)<36, wrote
    assert len(sent.had)>=len(h)-12

def test_a_side_request_leaves_what_is_kept_of_the_conversation():
    spec,sent = ModelSpec('m', 'x', 'm'),Sent()
    h = [m for i in range(9) for m in (user(f'q{i}'), assistant([text('a')]))]+[user('on')]
    def ask(h): sent.body(chat_body(spec, []), h, lambda p: to_chat(p, spec))
    ask(h); had = [*sent.had]
    ask([user('a title for this?')])
    assert had and sent.had==had

@pytest.mark.parametrize('mk,to,end', [(chat_body, to_chat, list), (claude_body, to_messages, mark)])
def test_a_conversation_rewound_to_where_the_kept_part_ends_is_joined_as_ever(mk, to, end):
    spec,sent = ModelSpec('m', 'x', 'm'),Sent()
    def same(h): return sent.body(mk(spec, []), h, lambda p: to(p, spec), end)==jdumps(mk(spec, h)).encode()
    h = [m for i in range(9) for m in (user(f'q{i}'), assistant([text('a')]))]+[user('on')]
    assert same(h) and (n := len(sent.had))
    for more in ([], [user('b')], [user('b'), assistant([text('c')]), user('d'), assistant([text('e')]), user('f')], [assistant([thinking('hm')]), *h]):
        assert same(h[:n]+more) and same(h)
