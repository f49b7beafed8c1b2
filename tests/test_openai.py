"""OpenAI's side: Responses, and what is peculiar to servers that say they speak chat completions.

What holds in any dialect is asked of all three; what a server alone demands is asked of a fake of that server, which refuses what the real one refuses.
"""
import asyncio, json, random, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import pytest
from hypothesis import strategies as st
from width import examples, few_or_many, given, wide
from ramabana_acp.config import Config
from ramabana_acp.core import Cancelled, Err, Token, jdumps
from ramabana_acp.agent.records import message_ok
from ramabana_acp.models.messages import assistant, call, calls, pair, result, results, text, text_of, thinking, user
from ramabana_acp.models.openai import chat_body, to_chat
from ramabana_acp.models.profiles import PROFILES
from ramabana_acp.models.errors import ModelError
from ramabana_acp.models.provider import mk_provider
from ramabana_acp.models.responses import ResponsesReply, SentItems, responses_body, to_input, _frame
from ramabana_acp.models.schemas import openapi
from ramabana_acp.models.specs import MODELS, ModelSpec, cost, hint, resolve, served
from ramabana_acp.models.sse import Sent, pump
from ramabana_acp.testing.accents import SERVERS, _unknown
from ramabana_acp.testing.models import FakeModel
from ramabana_acp.testing.responses import Responses
from asking import *
from test_sessions import KEY, second_turns
from wire import BARE, agent, poll

png,pdf = b'\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\6\0\0\0',b'%PDF-1.7 x'
def answer(msg, *media): return results([result(c, f"ERROR: {c['bad']}" if c.get('bad') else f'r{i}', not c.get('bad'), media) for i,c in enumerate(calls(msg))])

def stored(history):
    "What comes back of a history that was kept as JSON"
    assert all(map(message_ok, history))
    return json.loads(json.dumps(history))

# ---------------------------------------------------------------- one script, three dialects

@each
def test_one_script_is_the_same_answer_in_every_dialect(dialect):
    script = [dict(think='hm', signature='seal'), dict(text='I '), dict(text='look.'), dict(tool='ls', id='t1', args=dict(path='é')), dict(tool='ls', id='t2', args={}, pieces=9),
        dict(usage=dict(input=7, output=5, cache_read=30))]
    with FakeModel([script, [dict(text='ok')]]) as m:
        shown,p = [],provider(m, dialect)
        msg = ask(p, tools=[LS], shown=shown)
        assert [(k,o) for k,o in shown[:4]]==[('think','hm'), ('text','I look.'), ('call',dict(id='t1', name='ls')), ('call',dict(id='t2', name='ls'))]
        assert [q['type'] for q in msg['content']]==['thinking','text','call','call'] and msg['stop']=='calls'
        assert [c['args'] for c in calls(msg)]==[dict(path='é'), {}] and not any(c.get('bad') for c in calls(msg))
        assert [msg['usage'][k] for k in ('input','output','cache_read')]==[7,5,30]
        assert text_of(ask(p, [*hi, msg, answer(msg)], tools=[LS]))=='ok', 'and a strict server takes it back'
        assert {r.dialect for r in m.requests}=={dialect}

@each
@pytest.mark.parametrize('how', [dict(close=True), dict(cut=True), dict(cut='fin')], ids=['clean','reset','fin'])
def test_C133_an_answer_without_its_end_is_none_and_a_call_in_it_never_runs(dialect, how):
    half = [dict(text='I write.'), dict(tool='create_file', id='t1', args=dict(path='x')), how]
    with FakeModel([half, [dict(close=True)], [dict(text='ok')]]) as m:
        shown = []
        with pytest.raises(ModelError) as e: ask(provider(m, dialect), shown=shown)
        assert e.value.kind=='cut' and 'done' not in [k for k,_ in shown] and len(m.requests)==1
        assert text_of(ask(provider(m, dialect)))=='ok' and len(m.requests)==3, 'nothing shown: asked again'

@each
@pytest.mark.parametrize('args', ['{"path":"a.txt","text":"half of th', '{"path":"a.txt"}', ''])
def test_C125_a_call_that_the_output_limit_struck_never_runs(dialect, args):
    with FakeModel([[dict(tool='ls', id='t0', args={}), dict(tool='create_file', id='t1', args=args), dict(stop='length')], [dict(text='less then')]]) as m:
        p = provider(m, dialect)
        msg = ask(p)
        assert msg['stop']=='length' and [bool(c.get('bad')) for c in calls(msg)]==[False,True]
        assert 'output limit' in calls(msg)[1]['bad'] and calls(msg)[1]['args']=={}
        ask(p, [*hi, msg, answer(msg)])

@each
@pytest.mark.parametrize('args', ['{"path":"a.txt","text":"un', '[1]', 'null', '{"a":1,"a":2}', '{"a":NaN}'])
def test_C124_arguments_that_are_no_object_are_told_to_the_model(dialect, args):
    with FakeModel([[dict(tool='create_file', id='t1', args=args)], [dict(text='ok')]]) as m:
        p = provider(m, dialect)
        msg = ask(p)
        assert calls(msg)[0]['args']=={} and 'arguments' in calls(msg)[0]['bad']
        ask(p, [*hi, msg, answer(msg)])
        assert 'ERROR: the arguments' in dumps(m.requests[1].body)

@each
def test_a_refusal_is_known_as_one_in_every_dialect(dialect):
    with FakeModel([[dict(text='I cannot'), dict(stop='refusal')]]) as m: assert ask(provider(m, dialect))['stop']=='refusal'

@each
@pytest.mark.parametrize('events', [[dict(silence=30)], [dict(text='a'), dict(sleep=30)]], ids=['silent','mid-stream'])
def test_cancel_closes_the_socket_in_every_dialect(dialect, events):
    with FakeModel([events]) as m:
        tok = Token()
        threading.Thread(target=lambda: (m.wait_requests(1), time.sleep(.05), tok.cancel()), daemon=True).start()
        with pytest.raises(Cancelled): ask(provider(m, dialect), tok=tok)
        assert len(m.wait_closed(1))==1

@each
def test_whatever_a_history_looks_like_a_strict_server_takes_it(dialect):
    c1,c2 = call('t1', 'ls', {}),call('t1', 'my tool', dict(path='\ud800'))
    sealed = thinking('x', item=dict(type='reasoning', id='rs_9', summary=[], encrypted_content='box'), by='m')
    pic = user(media=[png, pdf, b'\0odd'])['content']
    h = [user('go \udc80', [png, pdf]), assistant([text(''), c1, c2], 'cancelled'), user('  '), results([result(c1, '', media=pic)]), assistant([sealed], 'cut'),
        user('on'), assistant([text('a'), thinking('x', 'seal'), sealed], 'cut'), assistant([text('b')]), user('so?')]
    with FakeModel([[dict(text='ok')]]) as m: assert text_of(ask(provider(m, dialect), h))=='ok'

# ---------------------------------------------------------------- Responses: what goes out

LONG = [[dict(think='one', signature='box1'), dict(text='I look.'), dict(tool='ls', id='t1', args=dict(path='a')), dict(tool='ls', id='t2', args={})],
    [dict(redacted='box2'), dict(tool='ls', id='t3', args={})], [dict(think='so'), dict(text='Done.')], [dict(text='Again.')]]

def test_reasoning_goes_back_unchanged_in_its_place_also_after_it_was_stored():
    with FakeModel(LONG) as m:
        p,h = provider(m, 'responses'),list(hi)
        for _ in LONG[:3]:
            msg = ask(p, h)
            h += [msg, *([answer(msg)] if calls(msg) else [])]
        h.append(user('again'))
        ask(p, h); ask(provider(m, 'responses'), stored(h))
        bodies = [r.body for r in m.requests]
    assert jdumps(bodies[3])==jdumps(bodies[4]), 'the same from a file and another process'
    for a,b in zip(bodies, bodies[1:4]): assert b['input'][:len(a['input'])]==a['input'], 'a prefix, which a cache can use'
    items = bodies[3]['input']
    assert [o['type'] for o in items]==['message','reasoning','message','function_call','function_call','function_call_output','function_call_output',
        'reasoning','function_call','function_call_output','reasoning','message','message']
    assert [(o['summary'], o['encrypted_content']) for o in items if o['type']=='reasoning'][:2]==[([dict(type='summary_text', text='one')],'box1'), ([],'box2')]
    assert all(b['store'] is False and b['include']==['reasoning.encrypted_content'] for b in bodies)

def test_a_body_has_the_effort_a_summary_and_its_limits():
    spec = ModelSpec('openai/m', 'openai', 'm', api='responses')
    b = responses_body(spec, hi, 'Be kind.', [LS], 'high', 4)
    assert (b['instructions'], b['reasoning'], b['max_output_tokens'])==('Be kind.', dict(effort='high', summary='auto'), 16)
    assert b['tools']==[dict(type='function', name='ls', description='List', parameters=LS['input_schema'], strict=False)]
    assert responses_body(spec, hi, effort='none')['reasoning']==dict(effort='none')
    key = b['prompt_cache_key']
    assert key==responses_body(spec, [*hi, assistant([text('x')]), user('y')], 'Be kind.')['prompt_cache_key']!=responses_body(spec, [user('else')], 'Be kind.')['prompt_cache_key']

def test_pictures_and_documents_go_as_input_also_out_of_a_tool():
    with FakeModel([[dict(tool='view', id='t1', args={})], [dict(text='ok')]]) as m:
        p = provider(m, 'responses')
        h = [user('look', [png, pdf])]
        h.append(ask(p, h))
        ask(p, [*h, answer(h[1], dict(type='image', mime='image/png', data=png))])
        a,_,b = m.requests[1].body['input']
    assert [o['type'] for o in a['content']]==['input_text','input_image','input_file'] and a['content'][2]['file_data'].startswith('data:application/pdf;base64,')
    assert [o['type'] for o in b['output']]==['input_text','input_image']

def test_what_another_model_thought_stays_here_and_comes_back_to_it():
    with FakeModel([[dict(think='a', signature='box'), dict(text='one')], [dict(text='two')], [dict(text='three')]]) as m:
        h = [*hi, ask(provider(m, 'responses', id='a')), user('on')]
        h += [ask(provider(m, 'responses', id='b'), h), user('on')]
        ask(provider(m, 'responses', id='a'), h)
        assert [['reasoning' in [o.get('type') for o in r.body['input']]] for r in m.requests]==[[False],[False],[True]]

def test_a_conversation_goes_from_each_dialect_to_each_other():
    turn = [dict(think='hm', signature='seal'), dict(text='I look.'), dict(tool='ls', id='t1', args={})]
    for a in APIS:
        for b in APIS:
            with FakeModel([turn, [dict(text='ok')]]) as m:
                msg = ask(provider(m, a))
                assert text_of(ask(provider(m, b), stored([*hi, msg, answer(msg)])))=='ok', (a, b)

def test_a_text_says_again_whether_it_was_an_aside():
    item = dict(type='message', id='msg_1', role='assistant', phase='commentary', status='completed', content=[dict(type='output_text', text='I look.', annotations=[])])
    end = dict(type='response.completed', response=dict(status='completed', output=[item]))
    with FakeModel([[dict(raw='data: '+dumps(end)+'\n\n')], [dict(text='ok')]]) as m:
        p = provider(m, 'responses')
        msg = ask(p)
        assert text_of(msg)=='I look.'
        ask(p, [*hi, msg, user('on')])
        assert m.requests[1].body['input'][1]==item

@few_or_many(25, 400)
@pytest.mark.parametrize('limit', [4<<20, 6000, 0])
def test_a_request_has_the_bytes_it_would_have_if_nothing_had_been_kept(limit, n):
    spec = ModelSpec('x/m', 'x', 'm', base_url='http://127.0.0.1:1', accepts=('text','image'), api='responses')
    sealed = st.builds(lambda s,by: thinking(s, item=dict(type='reasoning', id=f'rs_{len(s)}', summary=[], encrypted_content=s), by=by), st.text(max_size=5), st.sampled_from('mn'))
    part = st.one_of(st.sampled_from(['', ' ', 'hi', '"input":[', '\ud800', 'x'*99]).map(text), sealed, st.builds(call, st.sampled_from(['t1','t2','a b']), st.just('ls'), st.sampled_from([{}, {'p':'\udfff'}])))
    turn = st.builds(lambda ps,full,s: [m := assistant(ps), *([answer(m)] if full and calls(m) else []), user(s)], st.lists(part, max_size=4), st.booleans(), st.sampled_from(['a',' ','é\u2028']))
    op = st.tuples(st.sampled_from('++++++-~!'), turn, st.integers(0, 99))
    kept = []
    @examples(n)
    @given(st.integers(0, 6), st.lists(op, max_size=12))
    def check(turns, ops):
        sent,h = SentItems(limit),[m for i in range(turns) for m in (user(f'q{i}'), assistant([text('a')]))]+[user('go')]
        for o,new,k in ops:
            if o=='+': h = h+new
            elif o=='-': h = h[:k%len(h)+1]
            elif o=='!': h = h[:k%len(h)]+h[k%len(h)+1:] or hi
            elif h[k%len(h)]['role']!='tool': h[k%len(h)] = user(f'changed {k}')
            q = pair(h)
            assert sent.body(_frame(spec, q, 'S', [LS]), q, lambda ms: to_input(ms, spec))==jdumps(responses_body(spec, q, 'S', [LS])).encode()
            assert len(sent.json)+512*len(sent.had)<=limit
        kept.append(len(sent.had))
    check()
    assert not limit or sum(map(bool, kept))>len(kept)/5

def test_a_step_of_a_long_conversation_writes_only_its_end():
    spec,h,sent,wrote = ModelSpec('x/m', 'x', 'm', api='responses'),[],SentItems(),[]
    def wire(ms): wrote.append(len(ms)); return to_input(ms, spec)
    for i in range(60):
        c = call(f't{i}', 'ls', {})
        h += [user(f'q{i}'), assistant([c]), results([result(c, 'r')]), assistant([text('a')])]
        wrote.clear()
        sent.body(_frame(spec, h), pair(h[:-1]), wire)
        assert sum(wrote)<16, wrote

# ---------------------------------------------------------------- Responses: what comes in

def event(kind, **kw): return dict(type=kind, **kw)
def added(i, **item): return event('response.output_item.added', output_index=i, item=item)
def done(i, **item): return event('response.output_item.done', output_index=i, item=item)
def piece(kind, i, d, **kw): return event(f'response.{kind}.delta', output_index=i, delta=d, **kw)
def over(status='completed', **kw): return event(f'response.{status}', response=dict(status=status, **kw))
def made(*events, **kw):
    "The message of a server that sends exactly `events`"
    with FakeModel([[dict(raw=''.join(f"event: {e['type']}\ndata: {dumps(e)}\n\n" for e in events), **kw)]]) as m: return ask(provider(m, 'responses'))
FC = dict(type='function_call', id='fc_1', call_id='t1', name='ls')

def test_C118_a_call_without_arguments_runs_with_none():
    for args in ('', ' ', '{}', None):
        c, = calls(made(added(0, **FC), done(0, **FC, arguments=args), over()))
        assert (c['id'], c['args'], c.get('bad'))==('t1', {}, None)

@pytest.mark.parametrize('by', [0, 1])
def test_C119_arguments_may_be_torn_anywhere(by):
    args = dict(path='a.txt', text='😀 \né"')
    s = json.dumps(args)
    msg = made(added(0, **FC, arguments=''), *(piece('function_call_arguments', 0, c) for c in s), done(0, **FC, arguments=s), over(), by=by)
    assert calls(msg)[0]['args']==args

def test_C122_pieces_of_two_calls_may_alternate():
    two = {**FC, 'id':'fc_2', 'call_id':'t2', 'name':'cat'}
    msg = made(added(0, **FC), added(1, **two), piece('function_call_arguments', 0, '{"a"'), piece('function_call_arguments', 1, '{"b"'), piece('function_call_arguments', 1, ':2}'),
        piece('function_call_arguments', 0, ':1}'), done(1, **two), done(0, **FC), over())
    assert [(c['id'], c['args']) for c in calls(msg)]==[('t1',dict(a=1)), ('t2',dict(b=2))]

@pytest.mark.parametrize('events', [
    [added(0, **FC), piece('function_call_arguments', 0, '{"command":"rm x"}'), over()],
    [added(0, **FC), done(0, **FC, arguments='{"command":"rm x"}', status='incomplete'), over()]], ids=['never done', 'done incomplete'])
def test_a_call_that_was_never_closed_never_runs_although_the_response_completed(events):
    c, = calls(made(*events))
    assert c['args'] in ({}, dict(command='rm x')) and 'never closed' in c['bad']

def test_C133_cut_at_every_byte_a_response_is_whole_or_an_error_and_never_says_anything_twice():
    d = Responses({}, 40)
    body = d.start()+d.think(dict(think='hm'))+d.text(dict(text='I lööööok.'))+d.tool(dict(tool='ls', id='t1', args=dict(path='é')))+d.tool(dict(tool='cat', id='t2', args={}))+d.finish('calls')
    class Body:
        def __init__(self, b): self.b = b
        async def aiter_bytes(self): yield self.b
        async def aclose(self): pass
    async def play(n):
        out = []
        try: await pump(Body(body[:n]), ResponsesReply(lambda *e: out.append(e)), lambda *e: out.append(e))
        except ModelError as e: assert e.kind=='cut'
        return out
    async def every(): return [await play(n) for n in range(0, len(body)+1)]
    outs = asyncio.run(every())
    whole = outs[-1]
    assert [k for k,_ in whole]==['think','text','call','call','done']
    for n,out in enumerate(outs): assert out==whole[:len(out)], n

def test_events_that_nobody_knows_are_nothing():
    msg = made(event('response.created', response={}), event('response.hologram.delta', output_index=0, delta='x'), added(0, type='web_search_call', id='ws_1'),
        event('response.web_search_call.searching', output_index=0), done(0, type='web_search_call', id='ws_1'), event('keepalive'),
        piece('output_text', 1, 'ok', content_index=0), event('response.steer.accepted'), over())
    assert msg['content']==[text('ok')] and msg['stop']=='end'

@pytest.mark.parametrize('code,kind', [('server_error','server'), ('rate_limit_exceeded','rate_limit'), ('invalid_prompt','bad_request'), ('insufficient_quota','quota'), ('context_length_exceeded','context_overflow')])
@pytest.mark.parametrize('form', ['failed','error'])
def test_a_failed_response_is_a_failure_of_its_kind(code, kind, form):
    e = over('failed', error=dict(code=code, message='so it is')) if form=='failed' else event('error', code=code, message='so it is', param=None)
    with FakeModel([[dict(raw=f'data: {dumps(e)}\n\n')]]*9) as m:
        with pytest.raises(ModelError) as got: ask(provider(m, 'responses'))
        assert got.value.kind==kind and 'so it is' in str(got.value) and len(m.requests)==(5 if got.value.retryable else 1)

def test_a_failed_response_after_words_is_a_cut():
    with FakeModel([[dict(text='half'), dict(stop='failed')]]) as m, pytest.raises(ModelError) as e: ask(provider(m, 'responses'))
    assert e.value.kind=='cut'

@pytest.mark.parametrize('reason,stop', [('max_output_tokens','length'), ('content_filter','refusal'), ('max_messages','length'), (None,'length')])
def test_an_incomplete_response_says_why(reason, stop):
    msg = made(piece('output_text', 0, 'so far'), over('incomplete', incomplete_details=dict(reason=reason)))
    assert (msg['stop'], text_of(msg))==(stop, 'so far')

def test_a_refusal_in_words_is_one():
    item = dict(type='message', id='msg_1', role='assistant')
    msg = made(added(0, **item), piece('refusal', 0, 'I will '), piece('refusal', 0, 'not.'), done(0, **item, content=[dict(type='refusal', refusal='I will not.')]), over())
    assert (msg['stop'], text_of(msg))==('refusal', 'I will not.')

def test_the_order_of_parts_is_that_of_the_items():
    m = dict(type='message', role='assistant')
    msg = made(*(piece('output_text', i, f'{i} ') for i in (0, 2)), done(0, **m, id='a'), added(1, **FC), done(1, **FC, arguments='{}'), done(2, **m, id='b'), over())
    assert [(p['type'], p.get('text')) for p in msg['content']]==[('text','0 '), ('call',None), ('text','2 ')]

def test_paragraphs_of_a_summary_are_paragraphs():
    shown = []
    r = ResponsesReply(lambda *e: shown.append(e))
    for i,s in ((0,'a'), (0,'b'), (1,'c')): r.feed(piece('reasoning_summary_text', 0, s, summary_index=i))
    assert ''.join(s for _,s in shown)=='ab\n\nc'

@pytest.mark.parametrize('said,field', [('Encrypted content is not supported with this model.', 'include'), ('Your organization must be verified to generate reasoning summaries.', 'reasoning')])
def test_what_a_server_refuses_for_its_own_reasons_is_left_out_from_then_on(said, field):
    with FakeModel([[dict(http=400, body=dict(error=dict(message=said)))], [dict(text='ok')], [dict(text='ok')]]) as m:
        p = provider(m, 'responses')
        ask(p); ask(p)
        assert [field in r.body for r in m.requests]==[True, False, False]

def test_reasoning_that_a_server_cannot_open_is_left_out_and_the_conversation_goes_on():
    bad = dict(error=dict(message='The encrypted content for item rs_1 could not be verified.', code='invalid_encrypted_content'))
    with FakeModel([[dict(think='hm'), dict(tool='ls', id='t1', args={})], [dict(http=400, body=bad)], [dict(text='ok')]]) as m:
        p = provider(m, 'responses')
        msg = ask(p)
        assert text_of(ask(p, [*hi, msg, answer(msg)]))=='ok'
        assert ['reasoning' in dumps(r.body['input']) for r in m.requests]==[False, True, False]

def test_a_refusal_that_stays_is_told_and_not_asked_for_ever():
    with FakeModel([[dict(http=400, body='{"error":{"message":"Encrypted content is not supported with this model."}}')]]*9) as m:
        with pytest.raises(ModelError): ask(provider(m, 'responses'))
        assert len(m.requests)==2

# ---------------------------------------------------------------- C143, C145

@pytest.mark.parametrize('dialect', ['chat','responses'])
def test_C143_a_model_without_tools_talks_without_them_and_says_so_once(dialect):
    no = [dict(http=400, body='{"error":{"message":"registry.ollama.ai/library/llama3 does not support tools"}}')]
    with FakeModel([no, [dict(text='hi')], [dict(text='on')]]) as m:
        p,shown = provider(m, dialect),[]
        assert text_of(ask(p, tools=[LS], shown=shown))=='hi'
        assert [k for k,_ in shown]==['notice','text','done'] and 'takes no tools' in shown[0][1]
        shown.clear(); ask(p, tools=[LS], shown=shown)
        assert [k for k,_ in shown]==['text','done'] and ['tools' in r.body for r in m.requests]==[True,False,False]

def test_C143_when_it_is_refused_without_tools_too_that_is_told():
    with FakeModel([[dict(http=400, body='{"error":{"message":"llama3 does not support tools"}}')]]*9) as m:
        with pytest.raises(ModelError, match='does not support tools'): ask(provider(m, 'chat'), tools=[LS])
        assert len(m.requests)==2

def test_C143_a_vllm_server_that_was_started_without_tools_is_told_of_in_its_own_words():
    said = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    with FakeModel([[dict(http=400, body=dict(object='error', message=said, type='BadRequestError', code=400))]]*9, server='vllm') as m:
        with pytest.raises(ModelError) as e: ask(provider(m, 'chat'), tools=[LS])
        assert (e.value.kind, len(m.requests))==('bad_request', 1) and '--enable-auto-tool-choice' in str(e.value)

ODD = [dict(name='mode', description='', input_schema={'properties':{'mode':{'enum':['a','b']}}}), dict(name='none', description='', input_schema={}),
    dict(name='a.server/'+'x.'*95, description='Odd', input_schema={'anyOf':[{'properties':{'a':{'type':'string'}}, 'required':['a']}, {'properties':{'b':{'$ref':'#/$defs/B'}}}],
        '$defs':{'B':{'type':'object', 'additionalProperties':False, 'properties':{'again':{'$ref':'#/$defs/B'}}}}}), LS]

@pytest.mark.parametrize('api,server', [('chat',None), ('responses',None), ('chat','gemini')])
def test_C145_odd_tools_of_strangers_are_taken_and_the_others_stay_usable(api, server):
    def odd(body):
        f = body['tools'][2]
        return [dict(tool=f.get('name') or f['function']['name'], id='t1', args={}), dict(tool='ls', id='t2', args={})]
    with FakeModel([odd, [dict(text='ok')]], server=server) as m:
        p,shown = provider(m, api, profile=PROFILES.get(server)),[]
        msg = ask(p, tools=ODD, shown=shown)
        assert [c['name'] for c in calls(msg)]==[ODD[2]['name'],'ls'] and [o['name'] for k,o in shown if k=='call']==[ODD[2]['name'],'ls']
        assert text_of(ask(p, [*hi, msg, answer(msg)], tools=ODD))=='ok'

word = st.sampled_from('type properties items anyOf allOf oneOf enum const required format $ref nullable additionalProperties not a b'.split())
leaf = st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.sampled_from(['string','object','#/a','#/properties/b','#','null']))

@wide(80, 1000, st.recursive(leaf, lambda c: st.lists(c, max_size=3)|st.dictionaries(word, c, max_size=5), max_leaves=25))
def test_C145_whatever_a_schema_is_gemini_reads_it(schema):
    out = openapi(schema)
    json.dumps(out)
    assert isinstance(out, dict) and _unknown(out) is None

# ---------------------------------------------------------------- one server after the other

def at(m, server, id='m'): return provider(m, 'chat', id, profile=PROFILES[server], accepts=('text','image')) # as `resolve` has them

TURNS = [[dict(think='first', signature='s1'), dict(text='I look.'), dict(tool='ls', id='call_with_a_long_id_1', args=dict(path='a')), dict(tool='ls', id='call_2', args={})],
    [dict(tool='ls', id='call_3', args={})], [dict(think='so'), dict(text='Done.')], [dict(text='Again.')]]

@pytest.mark.parametrize('server', SERVERS)
def test_a_conversation_with_tools_and_pictures_works_at(server):
    assert set(SERVERS)==set(PROFILES)
    with FakeModel(TURNS, server=server) as m:
        p,h = at(m, server),[user('look', [png, pdf])]
        for _ in range(3):
            msg = ask(p, h, tools=[LS], effort='low', max_tokens=100)
            h += [msg, *([answer(msg, dict(type='image', mime='image/png', data=png))] if calls(msg) else [])]
        assert [c['args'] for c in calls(h[1])]==[dict(path='a'), {}] and len({c['id'] for c in calls(h[1])}-{''})==2
        assert any(q['type']=='thinking' and 'first' in q['text'] for q in h[1]['content'])
        h.append(user('again'))
        ask(p, h, tools=[LS]); was = m.requests[-1].body
        m.script.append(TURNS[3])
        ask(at(m, server), h, tools=[LS])
        assert jdumps(m.requests[-1].body)==jdumps(was), 'the same bytes from a provider that knows nothing of before'
        bodies = [r.body['messages'] for r in m.requests[:4]]
        for a,b in zip(bodies, bodies[1:]): assert b[:len(a)-1]==a[:-1], 'the beginning stays'

@pytest.mark.parametrize('server', SERVERS)
def test_a_conversation_that_began_elsewhere_goes_on_at(server):
    with FakeModel([[dict(think='hm', signature='seal'), dict(text='I look.'), dict(tool='ls', id='toolu_01', args={})]]) as m: msg = ask(provider(m, 'messages'))
    with FakeModel([[dict(text='ok')]]*2, server=server) as m:
        h = [*hi, msg, answer(msg)]
        assert text_of(ask(at(m, server), h, tools=[LS]))=='ok'
        assert text_of(ask(at(m, server), [*h, user('wait, one more thing')], tools=[LS]))=='ok'

def test_deepseek_gets_its_reasoning_back_with_every_call_though_there_was_none():
    with FakeModel(TURNS, server='deepseek') as m:
        p,h = at(m, 'deepseek'),list(hi)
        for _ in range(3): h += [(msg := ask(p, h)), *([answer(msg)] if calls(msg) else [])]
        ask(p, [*h, user('on')])
        sent = [q.get('reasoning_content') for q in m.requests[-1].body['messages'] if q['role']=='assistant']
    assert sent==['first','','so']

def test_deepseek_short_of_machines_is_a_failure_that_passes():
    with FakeModel([[dict(stop='insufficient_system_resource')], [dict(text='ok')]], server='deepseek') as m:
        shown = []
        assert text_of(ask(at(m, 'deepseek'), shown=shown))=='ok' and shown[0][0]=='retry' and shown[0][1]['kind']=='overloaded'

def test_openrouter_gets_its_blocks_back_whole_in_order_and_only_from_the_model_that_made_them():
    with FakeModel([[dict(think='let me '), dict(think='see', signature='seal'), dict(redacted='box'), dict(tool='ls', id='t1', args={})], [dict(text='ok')], [dict(text='ok')]], server='openrouter') as m:
        h = [*hi, (msg := ask(at(m, 'openrouter'))), answer(msg)]
        ask(at(m, 'openrouter'), stored(h)); ask(at(m, 'openrouter', 'other'), h)
        same,other = [r.body['messages'][1] for r in m.requests[1:]]
    block = dict(id=None, format='anthropic-claude-v1', index=0)
    assert same['reasoning_details']==[dict(type='reasoning.text', **block, text='let me see', signature='seal'), dict(type='reasoning.encrypted', **block, data='box')]
    assert 'reasoning_details' not in other and not {'reasoning','reasoning_content'} & set(same)

@pytest.mark.parametrize('code,kind', [(502,'server'), (429,'rate_limit'), (402,'quota'), ('server_error','server')])
def test_openrouter_fails_in_a_stream_that_began_well(code, kind):
    with FakeModel([[dict(error=code, message='Provider disconnected')]]*9, server='openrouter') as m, pytest.raises(ModelError) as e: ask(at(m, 'openrouter'))
    assert e.value.kind==kind and 'Provider disconnected' in str(e.value)

def test_gemini_gets_the_seal_of_a_call_back_and_a_call_of_others_says_that_it_has_none():
    with FakeModel([[dict(tool='ls', id='t1', args={}), dict(tool='ls', id='t2', args={})], [dict(text='ok')], [dict(text='ok')]], server='gemini') as m:
        h = [*hi, (msg := ask(at(m, 'gemini'))), answer(msg)]
        ask(at(m, 'gemini'), stored(h))
        ask(at(m, 'gemini'), [*hi, assistant([call('x', 'ls', {})], 'calls'), results([result(dict(id='x', name='ls'), 'r')])])
        mine,foreign = [[c.get('extra_content') for c in r.body['messages'][1]['tool_calls']] for r in m.requests[1:]]
    assert mine==[dict(google=dict(thought_signature='seal-of-t1')), None]
    assert foreign==[dict(google=dict(thought_signature='skip_thought_signature_validator'))]
    with FakeModel([[dict(text='ok')]]) as m:
        ask(provider(m, 'chat'), h)
        assert 'extra_content' not in dumps(m.requests[0].body), 'and nobody else gets it'

def test_mistral_gets_ids_it_takes_and_no_fields_that_it_does_not_know():
    with FakeModel(TURNS, server='mistral') as m:
        msg = ask(at(m, 'mistral'), max_tokens=9)
        ask(at(m, 'mistral'), [*hi, msg, answer(msg), user('stop')])
        first,then = [r.body for r in m.requests]
    assert 'stream_options' not in first and first['max_tokens']==9 and [q['text'] for q in msg['content'] if q['type']=='thinking']==['first']
    ids = [c['id'] for c in then['messages'][1]['tool_calls']]
    assert ids==[q['tool_call_id'] for q in then['messages'] if q['role']=='tool'] and len(set(ids))==2
    assert [q['role'] for q in then['messages']]==['user','assistant','tool','tool','assistant','user']

@pytest.mark.parametrize('status,body', [(500, dict(error=dict(code=500, message='Context size has been exceeded.', type='server_error'))),
    (400, dict(error=dict(code=400, message='request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it', type='exceed_context_size_error')))])
def test_llama_cpp_that_has_no_room_says_so_as_an_overflow(status, body):
    with FakeModel([[dict(http=status, body=body)]]*9, server='llama.cpp') as m:
        with pytest.raises(ModelError) as e: ask(at(m, 'llama.cpp'))
        assert (e.value.kind, len(m.requests))==('context_overflow', 1)

def test_llama_cpp_that_has_no_room_says_it_with_status_200_too():
    with FakeModel([[dict(raw=dumps(dict(error=dict(code=400, message='the request exceeds the available context size', type='exceed_context_size_error'))))]], server='llama.cpp') as m:
        with pytest.raises(ModelError) as e: ask(at(m, 'llama.cpp'))
        assert e.value.kind=='context_overflow'

@pytest.mark.parametrize('server,field', [('ollama','reasoning'), ('vllm','reasoning'), ('llama.cpp','reasoning_content'), ('lmstudio',None)])
def test_a_local_server_gets_its_reasoning_back_where_its_template_reads_it(server, field):
    with FakeModel(TURNS, server=server) as m:
        msg = ask(at(m, server))
        ask(at(m, server), [*hi, msg, answer(msg)])
        sent = m.requests[1].body['messages'][1]
    assert {k:v for k,v in sent.items() if k.startswith('reasoning')}==({field:'first'} if field else {})

def test_what_is_kept_of_a_request_does_not_show_with_any_profile():
    for server,profile in PROFILES.items():
        spec,rnd,sent,h = ModelSpec('x/m', 'x', 'm', base_url='http://127.0.0.1:1', profile=profile),random.Random(server),Sent(),[]
        for i in range(60):
            c = call(f'call_{i}', 'ls', {})
            ps = [p for p in (thinking('hm', field=profile.get('reasoning')), text('a'), c) if rnd.random()<.7] or [c]
            h += [user(f'q{i}'), (m := assistant(ps)), *([answer(m, *([dict(type='image', mime='image/png', data=png)] if rnd.random()<.3 else []))] if calls(m) else [])]
            q = pair([*h, user('on')])
            assert sent.body(chat_body(spec, []), q, lambda ms: to_chat(ms, spec))==jdumps(chat_body(spec, q)).encode(), server
        assert sent.had

def test_a_model_that_takes_tools_with_one_effort_only_is_asked_so_over_chat_completions_and_freely_over_responses():
    luna = ModelSpec('openai/gpt-6-luna', 'openai', 'gpt-6-luna', profile=MODELS['openai']['gpt-6-luna']['profile'])
    assert [chat_body(luna, hi, tools=ts, effort='high')['reasoning_effort'] for ts in ((), [LS])]==['high','none']
    assert responses_body(luna, hi, tools=[LS], effort='high')['reasoning']['effort']=='high'

# ---------------------------------------------------------------- models and servers by name

@pytest.fixture
def cfg(tmp_path, monkeypatch):
    for k in ('OPENAI_API_KEY','ANTHROPIC_API_KEY','OPENAI_BASE_URL','ANTHROPIC_BASE_URL'): monkeypatch.delenv(k, raising=False)
    def make(s=''): (tmp_path/'config.toml').write_text(s); return Config(tmp_path)
    return make

def test_openai_speaks_responses_and_everybody_else_chat_completions_unless_told_otherwise(cfg, monkeypatch):
    c = cfg('''[providers.mine]
base_url = "https://gateway.example/v1"
[providers.theirs]
base_url = "https://gateway.example/v1"
api = "responses"
[models.old]
provider = "openai"
id = "gpt-5.4"
api = "openai"
[models.direct]
base_url = "https://eu.api.openai.com/v1"
[models.ant]
base_url = "https://gateway.example"
api = "anthropic"
''')
    names = ('gpt-6.2-sol','openai/gpt-next','mine/m','theirs/m','old','direct','ant','claude-sonnet-5-5')
    assert [resolve(n, c).api for n in names]==['responses','responses','openai','responses','openai','responses','anthropic','anthropic']
    assert [type(mk_provider(resolve(n, c), c)).__name__ for n in ('gpt-6.2-sol','old','ant')]==['ResponsesProvider','OpenAIProvider','ClaudeProvider']
    monkeypatch.setenv('OPENAI_BASE_URL', 'http://127.0.0.1:9/v1')
    assert resolve('gpt-6.2-sol', c).api=='openai'
    monkeypatch.setenv('OPENAI_BASE_URL', 'https://api.openai.com/v1')
    assert resolve('gpt-6.2-sol', c).api=='responses'
    assert resolve('openai/m', cfg('[providers.openai]\napi = "openai"')).api=='openai'

def test_every_row_of_the_table_is_of_one_form():
    for rows in MODELS.values():
        for r in rows.values():
            assert r['window']>=r['max_output']>0 and len(r['prices'] or (0,)*4)==4 and all(p is None or float(p)>=0 for p in r['prices'] or ())
            assert [e for e in ('none','low','medium','high','xhigh','max') if e in r['effort']]==list(r['effort'])

def test_prices_of_ones_own_are_counted(cfg):
    s = resolve('m', cfg('[models.m]\nbase_url = "http://127.0.0.1:1/v1"\nprices = {input="0.30", output=1, cache_read="0.03"}'))
    assert cost(dict(input=1_000_000, output=500_000, cache_read=1_000_000), s)=='0.83' and cost(dict(cache_write=1), s) is None
    assert cost(dict(input=1000, output=100, cache_read=9000, cache_write=1000), resolve('openai/gpt-6.2-sol', cfg()))=='0.0064'

@pytest.mark.parametrize('line,said', [('prices = {inptu="1"}', "prices has no 'inptu'"), ('prices = {input="free"}', 'write it like "2.50"'), ('prices = {input=true}', 'price of input'),
    ('kind = "olama"', "kind cannot be 'olama'"), ('api = "chat"', "api cannot be 'chat'"), ('prices = "2"', "prices cannot be '2'")])
def test_a_slip_in_a_table_is_told(cfg, line, said):
    with pytest.raises(Err) as e: resolve('m', cfg(f'[models.m]\nbase_url = "http://127.0.0.1:1/v1"\n{line}'))
    assert said in str(e.value) and '[models.m]' in str(e.value)

def test_a_server_is_known_by_its_host_its_port_or_its_kind(cfg):
    c = cfg('''[providers.a]
base_url = "http://127.0.0.1:11434/v1"
[providers.b]
base_url = "https://api.deepseek.com"
window = 5000
[providers.c]
base_url = "http://127.0.0.1:8000/v1"
kind = "vllm"
profile = {bridge = true}
[models.d]
provider = "c"
kind = "mistral"
window = 9000
''')
    assert resolve('a/m', c).profile==PROFILES['ollama'] and resolve('a/m', c).window==64_000
    assert resolve('b/m', c).profile==PROFILES['deepseek'] and resolve('b/m', c).window==5000
    assert resolve('c/m', c).profile=={**PROFILES['vllm'], 'bridge':True}
    assert resolve('d', c).quirk('ids')==9 and resolve('d', c).window==9000

def test_a_server_lists_its_models_and_a_wrong_name_hears_of_them():
    with FakeModel([[dict(http=404, body='{"error":{"message":"model not found, try pulling it first"}}')]], models=('qwen3-coder:30b','llama3.3')) as m:
        s = ModelSpec('x/qwen3', 'x', 'qwen3', base_url=f'{m.base}/v1')
        assert served(s)==served(s._replace(api='anthropic', base_url=m.base))==('qwen3-coder:30b','llama3.3')
        with pytest.raises(ModelError, match='try pulling it first; perhaps qwen3-coder:30b'): ask(mk_provider(s))

def test_a_server_that_says_nothing_of_use_has_no_list_and_holds_nobody(monkeypatch):
    seen,let_go = [],threading.Event()
    class Bad(BaseHTTPRequestHandler):
        def log_message(self, *a): pass
        def do_GET(self):
            seen.append((self.path, self.headers.get('authorization')))
            what = self.path.split('/')[1]
            if what=='silent': let_go.wait(60); return
            self.send_response(302 if what=='moved' else 200); self.send_header('location', f'http://127.0.0.1:{srv.server_port}/stolen'); self.end_headers()
            self.wfile.write(dict(html=b'<html>', list=b'[1]', odd=b'{"data":[{"id":3}]}', deep=b'['*99999).get(what, b''))
    srv = ThreadingHTTPServer(('127.0.0.1', 0), Bad); srv.daemon_threads = True
    threading.Thread(target=srv.serve_forever, daemon=True).start()
    monkeypatch.setenv('X_TEST_KEY', 'sk-test-served-0123456789')
    try:
        s = ModelSpec('x/m', 'x', 'm', key_env='X_TEST_KEY')
        for what in ('html','list','odd','deep','moved'): assert served(s._replace(base_url=f'http://127.0.0.1:{srv.server_port}/{what}'))==(), what
        assert served(s._replace(base_url=f'http://127.0.0.1:{srv.server_port}/silent'), timeout=.2)==(), 'while the server still says nothing'
        assert served(s)==() and hint(s)==''
        assert '/stolen' not in [p for p,_ in seen] and seen[0][1]=='Bearer sk-test-served-0123456789'
    finally: let_go.set(); srv.shutdown()

# ---------------------------------------------------------------- the whole program

CONFIG = '[providers.resp]\nbase_url = "{}/v1"\napi = "responses"\nkey_env = "OPENAI_API_KEY"\n'

def with_config(home, m):
    (d := home/'.config/ramabana-acp').mkdir(parents=True, exist_ok=True)
    (d/'config.toml').write_text(CONFIG.format(m.base))
    return dict(env=dict(OPENAI_API_KEY=KEY), home=home, **BARE)

def test_a_turn_with_thoughts_and_a_tool_runs_over_responses(tmp_path):
    with FakeModel([[dict(think='Hm.', signature='box'), dict(text='I look. '), dict(tool='view_file', id='t1', args=dict(path='a.txt'))], [dict(text='It says zebra.')]]) as m:
        with agent('--model', 'resp/fake-model', **with_config(tmp_path.resolve(), m)) as a:
            s = a.session(files={'a.txt':'zebra\n'})
            assert s.stop('what is in a.txt?')=='end_turn' and s.said()=='I look. It says zebra.' and 'Hm.' in s.said('agent_thought_chunk')
        first,then = [r.body for r in m.requests]
    assert [r.dialect for r in m.requests]==['responses']*2 and first['instructions']==then['instructions']
    assert then['input'][:len(first['input'])]==first['input']
    assert [o['type'] for o in then['input'][-4:]]==['reasoning','message','function_call','function_call_output'] and 'zebra' in then['input'][-1]['output']
    assert m.requests[0].headers['authorization']==f'Bearer {KEY}'

@pytest.mark.slow
def test_the_model_is_sent_byte_for_byte_what_it_would_have_been_sent_over_responses(tmp_path):
    home = tmp_path.resolve()
    with FakeModel() as m: want = second_turns(m, home, 'resp/fake-model', with_config(home, m)['env'])
    assert 'seal-1' in ''.join(want['thinks']) and '"reasoning"' in ''.join(want['thinks'])

def test_the_menu_of_models_grows_by_what_a_server_of_this_machine_has(tmp_path):
    home = tmp_path.resolve()
    with FakeModel(models=('qwen3','llama3')) as m:
        (home/'.config/ramabana-acp').mkdir(parents=True)
        (home/'.config/ramabana-acp/config.toml').write_text(f'[models.local]\nbase_url = "{m.base}/v1"\nid = "qwen3"\n')
        with agent('--model', 'local', home=home, **BARE) as a:
            menu = lambda opts: next([c['value'] for c in o['options']] for o in opts if o['id']=='model')
            for _ in range(9): # a server that does not say in time what it has is asked again by the next session only
                s = a.session()
                assert menu(s.result['configOptions'])==['local']
                try: poll(lambda: [u for _,u in s.ed.updates if u['sessionUpdate']=='config_option_update'], 6); break
                except TimeoutError: pass
            last = [u for _,u in s.ed.updates if u['sessionUpdate']=='config_option_update'][-1]
            assert menu(last['configOptions'])==['local','local/llama3']
            res = a.request('session/set_config_option', dict(sessionId=s.sid, configId='model', value='local/llama3'))
            assert next(o['currentValue'] for o in res['configOptions'] if o['id']=='model')=='local/llama3'
