"""What people reported of other agents' models, costs and contexts, tried on ours; each with the public thread that tells it.

A test says the fault as a person would. What the threads have in common is what a server sends, so most tests are a body of a stream or of an error.
"""
import base64, json, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import pytest
from hypothesis import strategies as st
from width import examples, given
from ramabana_acp.core import jdumps
from ramabana_acp.models.claude import ClaudeReply, to_messages
from ramabana_acp.models.messages import assistant, call, calls, media, result, results, text, text_of, thinking, user
from ramabana_acp.models.openai import ChatReply, chat_usage, to_chat
from ramabana_acp.models.errors import ModelError, http_error
from ramabana_acp.models.responses import ResponsesReply, to_input
from ramabana_acp.models.sse import arguments
from ramabana_acp.models.specs import MODELS, ModelSpec, cost, resolve
from ramabana_acp.testing.models import FakeModel
from wire import *
from asking import *

PNG = bytes.fromhex('89504e470d0a1a0a0000000d494844520000000200000003080200000012 16f14d0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082'.replace(' ', ''))

def one(dialect, body, shown=None, **kw):
    "The message of a server that sends exactly `body`"
    with FakeModel([[dict(raw=body, **kw)]]) as m: return ask(provider(m, dialect), shown=shown, tools=[LS])

def words(shown, kind='text'): return ''.join(o for k,o in shown if k==kind)
def sse(*chunks, end='data: [DONE]\n\n'): return ''.join(f'data: {dumps(c)}\n\n' for c in chunks)+end
def fn(args, i=0, id='call_a', name='ls', **kw): return chunk(tool_calls=[dict(index=i, id=id, type='function', function=dict(name=name, arguments=args), **kw)])
def got(msg): return [(c['name'], c['args'], c.get('bad')) for c in calls(msg)]

def claude(*evs): return ''.join(f"event: {e['type']}\ndata: {dumps(e)}\n\n" for e in evs)
def begun(**use): return dict(type='message_start', message=dict(id='msg_1', type='message', role='assistant', content=[], model='m', usage=use))
def said(s, i=0): return dict(type='content_block_start', index=i, content_block=dict(type='text', text='')),dict(type='content_block_delta', index=i, delta=dict(type='text_delta', text=s)),dict(type='content_block_stop', index=i)
def over(why='end_turn', **use): return dict(type='message_delta', delta=dict(stop_reason=why), usage=use),dict(type='message_stop')

@contextmanager
def serving(answer):
    "The address of a server that sends what `answer(path, body)` gives: status, headers, bytes or an iterator of bytes"
    class H(BaseHTTPRequestHandler):
        protocol_version = 'HTTP/1.1'
        def log_message(self, *_): "Standard error belongs to the test"
        def do_POST(self):
            st,hs,out = answer(self.path, self.rfile.read(int(self.headers.get('content-length') or 0)))
            out = [out] if isinstance(out, bytes) else list(out)
            self.send_response(st)
            for k,v in {'content-type':'text/event-stream', 'content-length':sum(map(len, out)), **hs}.items(): self.send_header(k, v)
            self.end_headers()
            for b in out: self.wfile.write(b); self.wfile.flush()
        do_GET = do_POST
    s = ThreadingHTTPServer(('127.0.0.1', 0), H)
    threading.Thread(target=s.serve_forever, args=(.02,), daemon=True).start()
    try: yield f'http://127.0.0.1:{s.server_address[1]}'
    finally: s.shutdown(); s.server_close()

# ---------------------------------------------------------------- the end of an answer

@pytest.fixture
def short(monkeypatch):
    "Two seconds of silence after a reason to stop are one"
    from ramabana_acp.models.sse import pump
    monkeypatch.setattr('ramabana_acp.models.openai.pump', lambda resp, reply, emit: pump(resp, reply, emit, grace=1))

def test_an_empty_finish_reason_in_each_chunk_is_no_end(short):
    # aaif-goose/goose#10258
    shown = []
    with FakeModel([[dict(raw=sse(chunk('', role='assistant', content='one '), end='')), dict(sleep=1.2), dict(raw=sse(chunk('', content='two'), chunk('stop')))]]) as m:
        assert text_of(ask(provider(m), shown=shown))=='one two'
    with pytest.raises(ModelError) as e: one('chat', sse(chunk('', content='half'), end=''))
    assert e.value.kind=='cut'

def test_a_finish_reason_in_each_chunk_does_not_cut_the_answer_short(short):
    # BerriAI/litellm#31634, RayBytes/ChatMock#114: a reason to stop, and then the answer goes on
    with FakeModel([[dict(raw=sse(chunk('stop', content='one '), end='')), dict(sleep=.6), dict(raw=sse(chunk('stop', content='two '), end='')), dict(sleep=.6),
        dict(raw=sse(chunk('stop', content='three')))]]) as m: assert text_of(ask(provider(m)))=='one two three'

@pytest.mark.parametrize('why,stop', [('max_tokens','length'), ('MAX_TOKENS','length'), ('model_length','length'), ('SAFETY','refusal'), ('sensitive','refusal'), ('STOP','end'), ('eos','end')])
def test_a_gateway_that_passes_the_reason_of_another_dialect_on_is_understood(why, stop):
    # the references of Mistral (model_length), Gemini (MAX_TOKENS, SAFETY) and Zhipu (sensitive), which gateways pass on
    msg = one('chat', sse(fn('{"path":"a"}'), chunk(why)) if stop=='length' else sse(chunk(content='x'), chunk(why)))
    assert msg['stop']==stop and all(c.get('bad') for c in calls(msg))

@pytest.mark.parametrize('why', ['network_error','abort','error','insufficient_system_resource'])
def test_an_answer_that_the_server_gave_up_is_none(why):
    # vllm-project/vllm#53270 (abort); Zhipu's reference (network_error)
    with pytest.raises(ModelError) as e: one('chat', sse(chunk(content='half an ans'), chunk(why)))
    assert e.value.kind=='cut' and 'half' not in str(e.value)

def test_a_last_chunk_with_the_whole_message_again_is_not_shown_twice():
    # Perplexity and others send `message` beside `delta`
    full = dict(choices=[dict(index=0, delta={}, message=dict(role='assistant', content='one two'), finish_reason='stop')])
    shown = []
    assert text_of(one('chat', sse(chunk(content='one '), chunk(content='two'), full), shown))=='one two'==words(shown)

# ---------------------------------------------------------------- calls

@pytest.mark.parametrize('pieces', [('{}','{"path":','"a"}'), ('{"path":"a"}','{"path":"a"}'), ('{"path":"a"}','{}'), ('"{\\"path\\": \\"a\\"}"',)])
def test_arguments_that_come_twice_or_wrapped_in_a_string_are_read(pieces):
    # openai/openai-agents-js#712 ({} first), mudler/cogito#66 (twice), vllm-project/vllm#54964 (a string of JSON)
    msg = one('chat', sse(*(fn(p, id='call_a' if not i else None, name='ls' if not i else None) for i,p in enumerate(pieces)), chunk('tool_calls')))
    assert got(msg)==[('ls', dict(path='a'), None)]

def test_two_different_calls_in_one_are_told_to_the_model_and_not_guessed():
    # NousResearch/hermes-agent#26053: the first of the two is no better than the second
    msg = one('chat', sse(fn('{"path":"a"}{"path":"b"}'), chunk('tool_calls')))
    (name,args,bad), = got(msg)
    assert args=={} and 'not valid JSON' in bad

@pytest.mark.parametrize('name', ['functions.ls','default_api.ls','default_api:ls','ls<|channel|>commentary','<|constrain|>ls',' ls ','tools.ls','LS'])
def test_a_name_with_the_dressing_of_a_chat_template_is_the_tool_it_means(name):
    # vllm-project/vllm#32633, NorthlandPositronics/Cogtrix#2023 (gpt-oss)
    assert got(one('chat', sse(fn('{"path":"a"}', name=name), chunk('tool_calls'))))==[('ls', dict(path='a'), None)]

def test_a_name_that_means_no_tool_stays_as_it_came():
    msg = one('chat', sse(fn('{}', name='functions.rm_all'), chunk('tool_calls')))
    assert calls(msg)[0]['name']=='functions.rm_all'

def test_a_name_that_comes_in_pieces_is_one():
    # servers that stream the name as text
    msg = one('chat', sse(fn('', name='l'), chunk(tool_calls=[dict(index=0, function=dict(name='s', arguments=''))]), chunk(tool_calls=[dict(index=0, function=dict(arguments='{"path":"a"}'))]), chunk('tool_calls')))
    assert got(msg)==[('ls', dict(path='a'), None)]

def test_a_name_in_each_piece_of_a_long_call_does_not_have_all_of_it_parsed_each_time(monkeypatch):
    "A file of 100 KB would hold the loop of all requests for seconds"
    from ramabana_acp.models import pieces
    parsed,cs = [],pieces.Calls()
    monkeypatch.setattr(pieces, 'arguments', lambda s: (parsed.append(len(s)), arguments(s))[1])
    for s in ('{"text":"', *['word ']*999, '"}'): cs.add(dict(index=0, function=dict(name='create_file', arguments=s)))
    assert len(cs.all)==1 and len(parsed)<9 and len(arguments(''.join(cs.all[0]['args']))[0]['text'])==4995

def test_a_block_of_reasoning_that_says_neither_kind_nor_number_is_kept():
    msg = one('chat', sse(chunk(reasoning='hm', reasoning_details=[dict(text='h')]), chunk(reasoning_details=[dict(text='m')]), chunk('stop', content='x')))
    assert msg['content'][0]['extra']['details']==[dict(text='hm')]

# ---------------------------------------------------------------- thinking

@pytest.mark.parametrize('pieces', [('<think>','let me look','</think>','\n\nIt is 4.'), ('\n<thi','nk>let me ','look</th','ink>','It is 4.'), ('<think>let me look</think>It is 4.',)])
def test_thinking_in_tags_at_the_beginning_is_a_thought_and_not_the_answer(pieces):
    # vllm-project/vllm#34625, ggml-org/llama.cpp#25292, vierisid/jarvis#245
    shown = []
    msg = one('chat', sse(*(chunk(content=p) for p in pieces), chunk('stop')), shown)
    assert text_of(msg).strip()=='It is 4.'==words(shown).strip() and words(shown, 'think')=='let me look'
    assert all('let me look' not in dumps(m) for m in to_chat([*hi, msg], ModelSpec('x/y', 'x', 'y')))

def test_a_tag_later_in_an_answer_is_text():
    shown = []
    body = 'Use <think> like this: <think>x</think>'
    assert text_of(one('chat', sse(*(chunk(content=p) for p in (body[:9], body[9:])), chunk('stop')), shown))==body==words(shown)

@pytest.mark.parametrize('body', ['<', '<thin', '<think', ''])
def test_an_answer_that_ends_within_what_might_be_a_tag_is_whole(body):
    shown = []
    assert text_of(one('chat', sse(chunk(content=body), chunk('stop')), shown))==body==words(shown)

def test_a_thought_whose_tag_is_never_closed_is_kept_as_one():
    shown = []
    msg = one('chat', sse(chunk(content='<think>on and on'), chunk('length')), shown)
    assert (text_of(msg), words(shown, 'think'), msg['stop'])==('', 'on and on', 'length')

# ---------------------------------------------------------------- errors in other clothes

@pytest.mark.parametrize('o', [dict(object='error', message='the engine is dead', type='internal', code=500), dict(message='the engine is dead', code='x'),
    dict(detail='the engine is dead'), dict(error_msg='the engine is dead', error_code=17), dict(code=500, msg='the engine is dead', success=False), dict(error='the engine is dead')])
@pytest.mark.parametrize('form', ['body','event'])
def test_an_error_with_status_200_is_told_in_its_own_words(o, form):
    # saberjack/SHTUCodeProxy#4, ggml-org/llama.cpp#14566, vllm-project/guidellm#743
    body = dumps(o) if form=='body' else sse(o, end='')
    with FakeModel([[dict(raw=body)]]*9) as m:
        with pytest.raises(ModelError, match='the engine is dead'): ask(provider(m))

def test_a_comment_to_keep_alive_before_an_error_does_not_hide_it():
    with FakeModel([[dict(raw=': OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n'+sse(dict(error=dict(code=402, message='Insufficient credits'))))]]*3) as m:
        with pytest.raises(ModelError, match='Insufficient credits') as e: ask(provider(m))
    assert e.value.kind=='quota' and len(m.requests)==1

@pytest.mark.parametrize('raw', ['z-ai/glm is temporarily rate-limited upstream', dumps(dict(error=dict(message='z-ai/glm is temporarily rate-limited upstream'))),
    dict(error=dict(message='z-ai/glm is temporarily rate-limited upstream'))])
def test_the_reason_behind_provider_returned_error_is_shown(raw):
    # open-webui/computer#293, zed-industries/zed#64424
    e = http_error(429, dict(error=dict(message='Provider returned error', code=429, metadata=dict(raw=raw, provider_name='BaseTen'))))
    assert 'rate-limited upstream' in str(e) and 'BaseTen' in str(e) and e.kind=='rate_limit'

def test_json_within_the_message_of_an_error_is_unwrapped():
    # continuedev/continue#10290, Joouis/agent-maestro#161: a proxy passes Google's whole answer on as a text
    inner = json.dumps(dict(error=dict(code=400, message='API key not valid. Please pass a valid API key.', status='INVALID_ARGUMENT')), indent=2)
    e = http_error(400, dict(error=dict(message=inner, code=400, status='Bad Request')))
    assert e.kind=='auth.rejected' and str(e)=='the model server answered 400: API key not valid. Please pass a valid API key.'

def test_an_overflow_behind_provider_returned_error_is_one():
    raw = dumps(dict(error=dict(message="This model's maximum context length is 65536 tokens.")))
    assert http_error(400, dict(error=dict(message='Provider returned error', code=400, metadata=dict(raw=raw, provider_name='X')))).kind=='context_overflow'

LONG = '''input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again
The input token count (1,048,577) exceeds the maximum number of tokens allowed (1048576).
This model's maximum prompt length is 131072 but the request contains 537812 tokens.
The decoder prompt (length 5000) is longer than the maximum model length of 4096.
Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 100 `max_new_tokens`
`inputs` must have less than 4096 tokens. Given: 5000
prompt token count of 130000 exceeds the limit of 128000
Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)
Range of input length should be [1, 129024]
Prompt exceeds max length
tokens in request more than max tokens allowed
This model's maximum context length is 262144 tokens. However, you requested 0 output tokens and your prompt contains at least 262145 input tokens
prompt too long; exceeded max context length by 4 tokens
the request exceeds the available context size, try increasing it
Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens
Input is too long for requested model.
invalid params, context window exceeds limit (2013)
Your input exceeds the context window of this model. Please adjust your input and try again.
too many tokens: total number of tokens in the prompt cannot exceed 4081
Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192
The input (5000 tokens) is longer than the model's context length (4096 tokens).'''.split('\n')

@pytest.mark.parametrize('said', LONG)
def test_too_long_is_known_however_a_provider_words_it(said):
    # earendil-works/pi#5930, #4574, anomalyco/opencode#27519, #50574, openclaw/openclaw#85921
    assert http_error(400, dict(error=dict(message=said, type='invalid_request_error'))).kind=='context_overflow'

@pytest.mark.parametrize('said', ["Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 64 instead.",
    'max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens', "Unsupported value: 'temperature' does not support 0.2 with this model"])
def test_another_refusal_that_speaks_of_length_is_not_taken_for_a_full_window(said):
    assert http_error(400, dict(error=dict(message=said, type='invalid_request_error'))).kind=='bad_request'

@pytest.mark.parametrize('st', [413, 429])
def test_a_request_larger_than_the_tokens_of_a_minute_is_made_shorter_and_not_sent_again(st):
    # openclaw/openclaw#130096 (Groq answers 413), vanna-ai/vanna-flask#11 (OpenAI 429)
    e = http_error(st, dict(error=dict(message='Request too large for gpt-x in organization org on tokens per min (TPM): Limit 30000, Requested 45000.', type='tokens', code='rate_limit_exceeded')))
    assert (e.kind, e.retryable)==('context_overflow', False)

@pytest.mark.parametrize('st,said,kind', [(400, 'API key not valid. Please pass a valid API key.', 'auth.rejected'), (400, 'Incorrect API key provided: xa***ab. You can obtain an API key from https://console.x.ai.', 'auth.rejected'),
    (400, 'You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.', 'quota'), (429, '余额不足或无可用资源包,请充值。', 'quota'),
    (429, 'Your account is suspended due to insufficient balance, please recharge your account', 'quota'), (403, 'The model requires an active subscription with credits. Add credits to continue.', 'quota'),
    (429, 'Extra usage is required for long context requests.', 'quota'), (429, 'Rate limit reached for model x on tokens per minute (TPM): Limit 6000, Used 5034, Requested 1443. Please try again in 4.77s. Upgrade today at https://console.groq.com/settings/billing', 'rate_limit')])
def test_a_bad_key_and_an_empty_purse_are_told_apart_whatever_the_status(st, said, kind):
    # google-gemini/gemini-cli#4690, can1357/oh-my-pi#449 (keys), anthropics/claude-code#27304 (extra usage), elizaOS/eliza#4040 (a limit that speaks of billing)
    assert http_error(st, dict(error=dict(message=said))).kind==kind

# ---------------------------------------------------------------- how long to wait

GEMINI = [dict(error=dict(code=429, status='RESOURCE_EXHAUSTED', message='You exceeded your current quota, please check your plan and billing details. Please retry in 2.5s.',
    details=[{'@type':'type.googleapis.com/google.rpc.RetryInfo', 'retryDelay':'2.5s'}]))]

def test_the_limit_of_a_minute_at_gemini_is_waited_for_and_not_taken_for_an_empty_purse():
    # letterstory/lettertrace#34, gke-labs/gemini-for-kubernetes-development#1215: the words are those of OpenAI's empty purse
    e = http_error(429, GEMINI)
    assert (e.kind, e.retryable, e.retry_after)==('rate_limit', True, 2.5)
    assert http_error(429, dict(error=dict(code='insufficient_quota', message='You exceeded your current quota, please check your plan and billing details.'))).kind=='quota'

@pytest.mark.parametrize('said,secs', [('Rate limit reached for gpt-x on tokens per min (TPM): Limit 30000, Used 29000. Please try again in 1.242s.', 1.242), ('Please try again in 20ms.', .02),
    ('Please try again in 6m0s. Visit https://x', 360), ('Please try again in 1h2m3s', 3723), ('Please retry in 23.5s.', 23.5), ('try again later', None), ('Please try again in 5 minutes', 300), ('Please retry after 20 seconds.', 20)])
def test_a_wait_that_stands_in_the_words_only_is_believed(said, secs):
    # openai/codex#2266, elizaOS/eliza#4040, firecrawl/firecrawl#819
    e = http_error(429, dict(error=dict(message=said, code='rate_limit_exceeded')))
    assert e.retry_after==(pytest.approx(secs) if secs else None)
    assert http_error(429, dict(error=dict(message=said)), {'retry-after':'7'}).retry_after==7, 'the header wins'

@each
def test_a_limit_that_is_too_far_away_to_wait_for_says_how_far(dialect):
    # serpapi/serpapi-mcp#40, google-gemini/gemini-cli#10925
    with FakeModel([[dict(headers={'retry-after':'3600'}), dict(http=429)]]) as m:
        with pytest.raises(ModelError, match='60 min') as e: ask(provider(m, dialect))
    assert len(m.requests)==1 and e.value.retry_after==3600

# ---------------------------------------------------------------- usage and cost

def test_a_proxy_that_counts_the_input_as_nothing_at_the_end_does_not_take_it_away():
    # envoyproxy/ai-gateway#1631, earendil-works/pi#1045; BerriAI/litellm#41406 the other way round
    for a,b in (dict(input_tokens=900, cache_read_input_tokens=50, output_tokens=1), dict(input_tokens=0, cache_read_input_tokens=0, output_tokens=5)),(dict(input_tokens=0, output_tokens=0), dict(input_tokens=900, cache_read_input_tokens=50, output_tokens=5)):
        u = one('messages', claude(begun(**a), *said('x'), *over(**b)))['usage']
        assert (u['input'], u['cache_read'], u['output'])==(900, 50, 5)

def test_thinking_that_a_server_counts_beside_the_output_is_paid_for():
    # UKGovernmentBEIS/inspect_ai#5528, Wei-Shaw/sub2api#5771 (xAI), vercel/ai#6738 (Gemini): completion_tokens without the reasoning ones
    assert chat_usage(dict(prompt_tokens=100, completion_tokens=10, total_tokens=150, completion_tokens_details=dict(reasoning_tokens=40)))['output']==50
    assert chat_usage(dict(prompt_tokens=100, completion_tokens=50, total_tokens=150, completion_tokens_details=dict(reasoning_tokens=40)))['output']==50

def test_tokens_written_to_a_cache_are_counted_once_over_chat_completions_too():
    # microsoft/conductor#427, tembo/agent-studio#238: a cached token is in the prompt already
    u = chat_usage(dict(prompt_tokens=1000, completion_tokens=1, prompt_tokens_details=dict(cached_tokens=600, cache_write_tokens=300)))
    assert (u['input'], u['cache_read'], u['cache_write'])==(100, 600, 300)

@pytest.mark.parametrize('u', [dict(prompt_tokens='12', completion_tokens='3'), dict(prompt_tokens=12.0, completion_tokens=3.0), dict(prompt_tokens=None), [], 'many', 7, dict(prompt_tokens_details=[], completion_tokens_details='x'),
    dict(prompt_tokens=float('nan'), completion_tokens=-4)])
@each
def test_counts_that_are_none_do_not_end_a_turn(dialect, u):
    # cline/cline#8384, huggingface/tau#617 (counters that are malformed or negative)
    cl = {k.replace('prompt','input').replace('completion','output'):v for k,v in u.items()} if isinstance(u, dict) else u
    body = dict(chat=sse(chunk(content='x'), {**chunk('stop'), 'usage':u}), messages=claude(begun(), *said('x'), dict(type='message_delta', delta=dict(stop_reason='end_turn'), usage=cl), dict(type='message_stop')),
        responses=sse(dict(type='response.completed', response=dict(status='completed', usage=cl, output=[dict(type='message', content=[dict(type='output_text', text='x')])])), end=''))[dialect].replace('NaN', '1e999')
    msg = one(dialect, body)
    assert text_of(msg)=='x' and all(type(v) is int and v>=0 for v in msg['usage'].values())

def test_a_long_prompt_costs_what_the_provider_asks_for_it():
    # BerriAI/litellm discussion 39633, community.openai.com/t/1381331: the whole request, by its input
    s = resolve('gpt-6.2-sol', None)
    assert cost(dict(input=272_000, output=1000), s)=='0.554' and cost(dict(input=272_001, output=1000), s)=='1.103004'
    assert cost(dict(input=1, output=1000, cache_read=200_000, cache_write=72_000), s)=='0.415004'
    h = resolve('claude-haiku-5-5', None)
    assert cost(dict(input=100_000, output=1000), h)=='0.0105' and cost(dict(input=50_000, output=1000, cache_read=50_001), h)=='0.03000005'

def test_a_dated_name_of_a_model_is_known_and_priced():
    # NousResearch/hermes-agent#101145, elizaOS/eliza#11527: a snapshot has a window of 128k and no price
    for id,known in (('claude-haiku-4-5-20251001','claude-haiku-4-5'), ('gpt-5.4-2026-03-05','gpt-5.4'), ('gpt-6.2-sol-latest','gpt-6.2-sol')):
        p = next(p for p in MODELS if known in MODELS[p])
        s,k = resolve(f'{p}/{id}', None),MODELS[p][known]
        assert (s.id, s.window, s.prices, s.long)==(id, k['window'], k['prices'], k['long'])

def test_prices_in_two_steps_of_ones_own(tmp_path):
    (tmp_path/'config.toml').write_text('[models.m]\nbase_url = "http://127.0.0.1:1/v1"\nprices = {input = "1", output = "2", long = {above = 1000, input = "3", output = "4"}}\n')
    assert [cost(dict(input=n, output=1000), resolve('m', tmp_path)) for n in (1000, 1001)]==['0.003','0.007003']
    for bad,why in (('{input = "3"}', 'long must be like'), ('{above = "x"}', 'above must be a number'), ('{above = 5, inptu = "1"}', "long has no 'inptu'")):
        (tmp_path/'config.toml').write_text(f'[models.m]\nbase_url = "http://127.0.0.1:1/v1"\nprices = {{input = "1", long = {bad}}}\n')
        with pytest.raises(InternalError.__base__, match=why): resolve('m', tmp_path)

# ---------------------------------------------------------------- the window

@contextmanager
def local(tmp_path, more=''):
    "An agent with a model on this machine, of which the settings say nothing but `more`: the table's guess of its window is 128,000"
    with Models() as ms:
        (tmp_path/'.config/ramabana-acp').mkdir(parents=True)
        (tmp_path/'.config/ramabana-acp/config.toml').write_text(f'[models.local]\nid = "fake"\nbase_url = "{ms.base}/v1"\n{more}')
        with agent('--model', 'local', home=tmp_path, init=False, **BARE) as a:
            a.models = ms
            a.initialize(None)
            yield a

SMALL = [dict(http=400, body=dict(error=dict(message='the request exceeds the available context size (8192 tokens), try increasing it', type='exceed_context_size_error', n_ctx=8192)))]

def test_a_server_that_names_a_smaller_window_is_believed_from_then_on(tmp_path):
    # anomalyco/opencode#50187, preset-io/agor#2167: the configured window is not the one that is served
    long = 'word '*3600 # about 4,500 tokens
    with local(tmp_path) as a:
        s = a.session([[dict(text='One. '+long)], SMALL, [dict(text='## Goal\nZebras.')], [dict(text='Two.')], [dict(usage=dict(input=7500, output=10)), dict(text='Three. '+long)], [dict(text='## Goal\nLions.')], [dict(text='Four.')]])
        for p in ('first','second','third','fourth'): assert s.stop(p)=='end_turn'
        asked = [i for i,r in enumerate(s.requests) if 'You summarise' in str(r['messages'][0])]
        assert asked==[2, 5], 'the second summary is made before the server has to refuse again'
        assert s.ed.of('usage_update')[-1]['size']==8192 and len(dumps(s.requests[2]))<8192*4

def test_a_prompt_that_ollama_has_cut_without_a_word_is_told_of_once():
    # ollama/ollama#7987, #3839, microsoft/vscode#255164, haoxiang-xu/PuPu#129
    h = [user('word '*9000)]
    with FakeModel([[dict(usage=dict(input=n)), dict(text='?')] for n in (4096, 4096, 9100)], server='ollama') as m:
        p = provider(m, profile=dict(reasoning='reasoning', cuts=True))
        told = [[o for k,o in p.stream(h) if k=='notice'] for _ in range(3)]
    assert 'OLLAMA_CONTEXT_LENGTH' in told[0][0] and not told[1] and not told[2]

def test_a_server_that_only_says_too_long_is_asked_for_less_than_it_refused(tmp_path):
    # anomalyco/opencode#50187, can1357/oh-my-pi#8920: the summary is as long as what was refused
    long = 'word '*3600
    with local(tmp_path) as a:
        s = a.session([[dict(text='One. '+long)], [dict(text='Two. '+long)], [dict(http=400, body=dict(error=dict(message='prompt is too long')))], [dict(text='## Goal\nZebras.')], [dict(text='Three.')]])
        for p in ('first','second','third'): assert s.stop(p)=='end_turn'
    sizes = [len(dumps(r)) for r in s.requests]
    assert 'You summarise' in str(s.requests[3]['messages'][0]) and sizes[3]<sizes[2]*.6 and sizes[4]<sizes[2]*.6

def test_a_proxy_that_takes_small_bodies_only_gets_them_without_the_picture():
    # docker/docker-agent#2819, can1357/oh-my-pi#9235: too many bytes is not too many tokens
    shown = []
    with FakeModel([[dict(http=413, body='<html><title>413 Request Entity Too Large</title></html>')], [dict(text='ok')]]) as m:
        assert text_of(ask(provider(m), [user('look', [PNG])], shown))=='ok' and any(k=='notice' for k,_ in shown)
        assert base64.b64encode(PNG).decode() not in dumps(m.requests[1].body)
    assert http_error(413, '<html><title>413 Request Entity Too Large</title></html>').kind=='context_overflow', 'without a picture, the conversation is made shorter'

def test_compact_tells_the_editor_how_little_is_left(tmp_path):
    # openai/codex#9416, openai/codex#40856: the indicator stays where it was
    with local(tmp_path) as a:
        s = a.session([[dict(usage=dict(input=90_000, output=10)), dict(text='One. '+'word '*9000)], [dict(text='Two.')], [dict(text='## Goal\nZebras.')]])
        s.prompt('first'); s.prompt('second')
        was = max(u['used'] for u in s.ed.of('usage_update'))
        s.prompt('/compact')
        assert s.ed.of('usage_update')[-1]['used']<was/4
        assert Again(a, s.sid, s.root).ed.of('usage_update')[-1]['used']<was/4

@each
def test_an_empty_answer_with_status_200_is_no_answer(dialect):
    # vllm-project/vllm-ascend#12166
    with FakeModel([[dict(raw='')]]*9) as m:
        with pytest.raises(ModelError, match='ended early') as e: ask(provider(m, dialect))
    assert e.value.kind=='cut' and len(m.requests)==5

def test_a_folder_cannot_send_the_key_elsewhere(bare):
    # Yeachan-Heo/gajae-code#3262: a repository's .env is not the person's
    with FakeModel([[dict(text='stolen')]]) as thief:
        s = bare.session([[dict(text='mine')]], files={'.env':f'OPENAI_BASE_URL={thief.base}/v1\nANTHROPIC_BASE_URL={thief.base}\n', 'config.toml':f'[providers.openai]\nbase_url = "{thief.base}/v1"\n'})
        assert s.stop()=='end_turn' and s.said()=='mine' and not thief.requests

# ---------------------------------------------------------------- pictures

BLIND = [(400, 'This model does not support image input'), (404, 'No endpoints found that support image input'), (400, 'Failed to deserialize the JSON body into the target type: messages[1]: unknown variant `image_url`, expected `text`'),
    (500, 'image input is not supported - hint: if this is unexpected, you may need to provide the mmproj'), (400, 'm is not a multimodal model'), (400, "messages[1].content must be a string"), (400, 'Could not process image'),
    (400, 'messages.0.content.1.image.source.base64: image exceeds 5 MB maximum')]

@pytest.mark.parametrize('st,said', BLIND)
@each
def test_a_picture_that_the_server_refuses_is_left_out_and_the_turn_goes_on(dialect, st, said):
    # block/buzz#4896, sipeed/picoclaw#2525, anomalyco/opencode#1741, 1jehuang/jcode#848, esengine/DeepSeek-Reasonix#7136, cloudflare/cloudflare-os#97
    shown,h = [],[user('what is this?', [PNG])]
    with FakeModel([[dict(http=st, body=dict(error=dict(message=said)))], [dict(text='no eyes')], [dict(text='again')]]) as m:
        p = provider(m, dialect)
        msg = ask(p, h, shown)
        ask(p, [*h, msg, user('and?')])
    assert len(m.requests)==3 and text_of(msg)=='no eyes' and any(k=='notice' and 'picture' in o for k,o in shown)
    b64 = base64.b64encode(PNG).decode()
    assert [b64 in dumps(r.body) for r in m.requests]==[True, False, False] and 'left out' in dumps(m.requests[1].body)

@each
def test_a_refusal_that_has_nothing_to_do_with_the_picture_keeps_it(dialect):
    h = [user('what is this?', [PNG])]
    with FakeModel([[dict(http=400, body=dict(error=dict(message='the image of the moon is wrong')))]]*2+[[dict(text='ok')]]) as m:
        p = provider(m, dialect)
        with pytest.raises(ModelError, match='moon'): ask(p, h)
        ask(p, h)
    assert base64.b64encode(PNG).decode() in dumps(m.requests[-1].body)

def test_the_result_of_a_failed_call_has_no_picture_at_anthropic():
    # vellum-ai/vellum-assistant#18387, caozhiyuan/copilot-api#196
    c = call('t1', 'shot', {})
    b = to_messages([*hi, assistant([c], 'calls'), results([result(c, 'ERROR: half a picture', False, [media(PNG)])])], ModelSpec('a/b', 'a', 'b'))[-1]['content'][0]
    assert b['is_error'] and all(o['type']=='text' for o in b['content'])

def view(path, id='v'): return dict(tool='view_file', id=id, args=dict(path=path))

def test_the_model_and_the_person_see_the_picture_that_view_file_opens(bare):
    # stacklok/mecatl#755, akemmanuel/OpenGUI#135, RooCodeInc/Roo-Code#10440
    s = bare.session([[view('logo.png')], [dict(text='A logo.')]], files={'logo.png':PNG})
    assert s.stop('look at logo.png')=='end_turn'
    b64 = base64.b64encode(PNG).decode()
    assert b64 in dumps(s.requests[-1]) and '2 x 3 pixels' in dumps(s.requests[-1])
    card = [u for u in s.ed.of('tool_call_update') if u.get('content')][-1]
    assert [b['content'] for b in card['content'] if b['content']['type']=='image']==[dict(type='image', mimeType='image/png', data=b64)]
    t = Again(bare, s.sid, s.root)
    assert any(b['content'].get('data')==b64 for u in t.ed.of('tool_call') for b in u.get('content') or ()), 'shown again when the conversation is loaded'

def test_a_model_without_eyes_is_told_of_the_picture_in_words(tmp_path):
    with local(tmp_path, 'accepts = ["text"]\n') as a:
        s = a.session([[view('logo.png')], [dict(text='I cannot see it.')]], files={'logo.png':PNG})
        assert s.stop()=='end_turn' and base64.b64encode(PNG).decode() not in dumps(s.requests[-1]) and 'cannot be sent it' in dumps(s.requests[-1])

def test_what_is_no_picture_that_can_be_shown_is_said_to_be_none(bare):
    # C139's kin: Piebald-AI/piebald-issues#67
    wide = PNG[:16]+(9000).to_bytes(4, 'big')+PNG[20:]
    files = {'x.jpg':b'\0\0\0\x18ftypheic'+bytes(40), 'cut.png':PNG[:14]+bytes(9), 'page.png':'<html>not found</html>', 'wide.png':wide, 'big.png':PNG+bytes(4<<20)}
    s = bare.session([[view(n, f'c{i}') for i,n in enumerate(files)], [dict(text='ok')]], files=files)
    assert s.stop()=='end_turn'
    got = [m['content'] for m in s.requests[-1]['messages'] if m['role']=='tool']
    said = 'convert it to PNG','damaged','not found','at most 8,000 a side','make a smaller copy'
    assert all(w in t for w,t in zip(said, got, strict=True)) and 'image_url' not in dumps(s.requests[-1])

# ---------------------------------------------------------------- fields that a server does not know

@pytest.mark.parametrize('said', ['Unrecognized request argument supplied: stream_options', 'stream_options: Extra inputs are not permitted', "Unknown parameter: 'stream_options'", 'json: unknown field "stream_options"'])
def test_a_server_that_knows_no_stream_options_is_asked_without(said):
    # openai/openai-agents-python#442, langgenius/dify-plugin-sdks#50
    with FakeModel([[dict(http=400, body=dict(error=dict(message=said)))], [dict(text='ok')], [dict(text='ok')]]) as m:
        p = provider(m)
        ask(p); ask(p)
    assert ['stream_options' in r.body for r in m.requests]==[True, False, False]

@pytest.mark.parametrize('said', ["Unsupported parameter: 'reasoning_effort' is not supported with this model.", 'Unrecognized request argument supplied: reasoning_effort', '"m" does not support thinking', "reasoning_effort: Extra inputs are not permitted"])
def test_a_model_that_takes_no_effort_is_asked_without(said):
    # atomantic/PortOS#6130, Aider-AI/aider#3572, tetsuo-ai/agenc-core#416
    with FakeModel([[dict(http=400, body=dict(error=dict(message=said)))], [dict(text='ok')], [dict(text='ok')]]) as m:
        p = provider(m)
        ask(p, effort='high'); ask(p, effort='high')
    assert ['reasoning_effort' in r.body for r in m.requests]==[True, False, False]

def test_mistrals_rules_are_kept_wherever_its_models_are_served():
    # NousResearch/hermes-agent#20154 (NIM), datapizza-labs/datapizza-ai#98
    h = [*hi, assistant([call('call_abc', 'ls', {})], 'calls'), results([result(call('call_abc', 'ls', {}), 'a.py')]), user('and?')]
    said = "Unexpected role 'user' after role 'tool'",'Tool call id was call_abc but must be a-z, A-Z, 0-9, with a length of 9.'
    with FakeModel([*[[dict(http=400, body=dict(object='error', message=s, type='invalid_request_message_order'))] for s in said], [dict(text='ok')]], server='mistral', strict=False) as m:
        assert text_of(ask(provider(m), h))=='ok'
    ms = m.requests[-1].body['messages']
    assert [o['role'] for o in ms]==['user','assistant','tool','assistant','user'] and len(ms[1]['tool_calls'][0]['id'])==9==len(ms[2]['tool_call_id'])

OLDER = dict(effort=('output_config: Extra inputs are not permitted', 'output_config'), binding=('thinking.adaptive.block_binding: Extra inputs are not permitted', 'block_binding'),
    adaptive=("thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags: 'disabled', 'enabled'", 'adaptive'), cache=('tools.0.cache_control: Extra inputs are not permitted', 'cache_control'))

def test_what_only_a_chat_completion_can_leave_out_is_no_reason_to_ask_again_over_responses():
    said = "Unexpected role 'user' after role 'tool'",'Tool call id was call_abc but must have a length of 9.','stream_options: Extra inputs are not permitted'
    with FakeModel([*[[dict(http=400, body=dict(error=dict(message=s)))] for s in said], [dict(text='ok')]]) as m:
        p = provider(m, 'responses')
        for s in said:
            with pytest.raises(ModelError, match=s[:9]): ask(p)
        assert text_of(ask(p))=='ok' and len(m.requests)==4

@pytest.mark.parametrize('what', OLDER)
def test_a_gateway_that_speaks_an_older_dialect_of_messages_is_asked_in_it(what):
    # NomaDamas/CozyClay#403, anthropics/claude-code-action#1005, mirrorange/clove#40, routatic/proxy#171, router-for-me/CLIProxyAPI#512
    said,word = OLDER[what]
    with FakeModel([[dict(http=400, body=dict(type='error', error=dict(type='invalid_request_error', message=said)))], [dict(text='ok')], [dict(text='ok')]]) as m:
        p = provider(m, 'messages', 'claude-opus-5-5', profile=dict(block_binding=True))
        for _ in range(2): assert text_of(ask(p, system='Be kind.', tools=[LS], effort='high'))=='ok'
    assert [word in dumps(r.body) for r in m.requests]==[True, False, False]
    assert all(w in dumps(m.requests[-1].body) for k,(_,w) in OLDER.items() if k!=what and (k,what)!=('binding','adaptive')), 'and nothing else is left out'

@pytest.mark.parametrize('said,told', [('<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>', True), ('I look.\n[TOOL_CALLS][{"name": "ls"}]', True), ('Write `<tool_call>` there.', False)])
def test_a_call_that_is_only_text_is_not_run_and_the_person_hears_why(said, told):
    # vllm-project/vllm#46863, NousResearch/hermes-agent#107125, abetlen/llama-cpp-python#1784
    shown = []
    msg = one('chat', sse(chunk(content=said), chunk('stop')), shown)
    assert not calls(msg) and text_of(msg)==said and any(k=='notice' and '--tool-call-parser' in o for k,o in shown)==told

def test_the_address_in_an_error_shows_no_password():
    with serving(lambda path, body: (404, {'content-type':'text/plain'}, b'404 page not found')) as base:
        with pytest.raises(ModelError, match='base URL') as e: ask(provider(base.replace('//', '//me:hunter22@')+'/x?key=abc'))
    assert 'hunter22' not in str(e.value) and 'abc' not in str(e.value)

def test_reasoning_of_another_model_leaves_no_items_behind_that_need_it():
    # openai/openai-agents-python#722, 0xPlaygrounds/rig#751: function_call was provided without its required reasoning item
    r = dict(type='reasoning', id='rs_1', summary=[], encrypted_content='x')
    c = call('c1', 'ls', {})|dict(extra=dict(item_id='fc_1'))
    h = [*hi, assistant([thinking('', item=r, by='gpt-6'), text('I look')|dict(extra=dict(item_id='msg_1', phase='commentary')), c], 'calls'), results([result(c, 'a.py')])]
    same,other,bald = (dumps(to_input(h, ModelSpec('o/'+id, 'o', id), seals)) for id,seals in (('gpt-6',True), ('gpt-7',True), ('gpt-6',False)))
    assert 'rs_1' in same and 'fc_1' in same and 'msg_1' in same
    for o in (other,bald): assert not any(i in o for i in ('rs_1','fc_1','msg_1')) and 'I look' in o and 'a.py' in o

def test_a_call_without_its_reasoning_is_sent_without_either():
    # openai/openai-agents-python#722
    r = dict(type='reasoning', id='rs_1', summary=[], encrypted_content='x')
    c = call('c1', 'ls', {})|dict(extra=dict(item_id='fc_1'))
    h = [*hi, assistant([thinking('', item=r, by='m'), c], 'calls'), results([result(c, 'a.py')])]
    with FakeModel([[dict(http=400, body=dict(error=dict(message="Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'.")))], [dict(text='ok')]]) as m:
        assert text_of(ask(provider(m, 'responses'), h))=='ok'
    assert 'fc_1' not in dumps(m.requests[1].body) and 'rs_1' not in dumps(m.requests[1].body)

# ---------------------------------------------------------------- servers that do not stream, addresses that are not quite right

def test_a_gateway_that_does_not_stream_is_understood_in_every_dialect():
    # BYK/loreai#1212
    whole = dict(chat=dict(choices=[dict(message=dict(role='assistant', content='hello', tool_calls=[dict(id='a', type='function', function=dict(name='ls', arguments='{}'))]), finish_reason='tool_calls')], usage=dict(prompt_tokens=5, completion_tokens=2)),
        messages=dict(type='message', role='assistant', content=[dict(type='thinking', thinking='hm', signature='s'), dict(type='text', text='hello'), dict(type='tool_use', id='a', name='ls', input={})], stop_reason='tool_use', usage=dict(input_tokens=5, output_tokens=2)),
        responses=dict(object='response', status='completed', output=[dict(type='message', content=[dict(type='output_text', text='hello')]), dict(type='function_call', call_id='a', name='ls', arguments='{}', status='completed')], usage=dict(input_tokens=5, output_tokens=2)))
    for dialect,o in whole.items():
        shown = []
        msg = one(dialect, dumps(o), shown)
        assert (text_of(msg), got(msg), msg['stop'], msg['usage']['input'])==('hello', [('ls', {}, None)], 'calls', 5) and words(shown)=='hello', dialect

@pytest.mark.parametrize('pasted', [True, False])
@each
def test_a_base_url_with_too_much_at_its_end_works(dialect, pasted):
    # harry0703/MoneyPrinterTurbo#57, #1001: people paste the whole address
    own = dict(chat='/v1/chat/completions', messages='/v1/messages', responses='/v1/responses')[dialect]
    with FakeModel([[dict(text='ok')]]) as m: assert text_of(ask(provider(m.base+(own if pasted else '/v1/'), dialect)))=='ok' and m.requests[0].path==own

def test_a_base_url_that_lacks_its_v1_says_so():
    # OpenHands/OpenHands#485, microsoft/TaskWeaver#11
    with serving(lambda path, body: (404, {'content-type':'text/plain'}, b'404 page not found')) as base:
        with pytest.raises(ModelError, match='base URL') as e: ask(provider(base))
    assert '/v1' in str(e.value)

@each
def test_a_model_that_is_not_there_brings_the_names_of_those_that_are(dialect):
    # nanbingxyz/5ire#237: a wrong model looks like a wrong address
    with FakeModel([[dict(http=404, body=dict(type='error', error=dict(type='not_found_error', message='model: fake-modell')))]], models=('fake-model','other')) as m:
        with pytest.raises(ModelError, match='perhaps fake-model'): ask(provider(m, dialect, 'fake-modell'))

def test_a_compressed_stream_is_read():
    # a proxy between
    import gzip
    b = gzip.compress(sse(chunk(content='hé'), chunk('stop')).encode())
    with serving(lambda path, body: (200, {'content-encoding':'gzip'}, [b[:11], b[11:]])) as base: assert text_of(ask(provider(base)))=='hé'

@pytest.mark.parametrize('change', [lambda s: s.replace('\n', '\r\n'), lambda s: '\ufeff'+s, lambda s: s.replace('data: ', 'data:'), lambda s: s.replace('data:', 'id: 7\nretry: 10\ndata:'), lambda s: s.replace('\n\n', '\n\n: keep-alive\n\n')])
@each
def test_a_stream_is_read_however_its_lines_are_written(dialect, change):
    # html.spec.whatwg.org, Server-sent events: all of these are one stream
    body = dict(chat=sse(chunk(content='hé '), chunk(content='you'), chunk('stop')), messages=claude(begun(), *said('hé you'), *over()),
        responses=sse(dict(type='response.output_text.delta', output_index=0, delta='hé you'), dict(type='response.completed', response=dict(status='completed', output=[])), end=''))[dialect]
    assert text_of(one(dialect, change(body), by=7))=='hé you'

# ---------------------------------------------------------------- whatever comes

anything = st.recursive(st.none()|st.booleans()|st.integers(-3, 3)|st.just(float('nan'))|st.text('ab<', max_size=3), lambda o: st.lists(o, max_size=3)|st.dictionaries(st.text('ab', max_size=2), o, max_size=3), max_leaves=6)
KEYS = dict(chat='choices delta message content tool_calls function name arguments index id finish_reason usage prompt_tokens prompt_tokens_details reasoning reasoning_content reasoning_details refusal type text thinking extra_content error'.split(),
    messages='type index content_block delta message usage input_tokens stop_reason stop_details error text thinking partial_json signature id name input output_tokens_details'.split(),
    responses='type item output_index item_id delta response output content summary usage status error arguments call_id name text incomplete_details input_tokens_details summary_index'.split())
TYPES = dict(chat=['text','thinking'], messages='message_start content_block_start content_block_delta content_block_stop message_delta message_stop text_delta input_json_delta thinking_delta signature_delta tool_use thinking text message'.split(),
    responses=['response.'+s for s in 'created output_item.added output_item.done output_text.delta reasoning_summary_text.delta function_call_arguments.delta function_call_arguments.done completed incomplete failed refusal.delta'.split()]+['message','reasoning','function_call','refusal'])
REPLIES = dict(chat=ChatReply, messages=ClaudeReply, responses=ResponsesReply)

@each
def test_whatever_a_server_sends_an_answer_is_whole_or_fails_with_a_name(dialect):
    # cline/cline#8384, open-webui/open-webui#27195, anomalyco/opencode#26412, microsoft/agent-framework#5734: a field that is null where nobody expected it is a crash of the client
    val = st.recursive(anything|st.sampled_from(TYPES[dialect]), lambda o: st.lists(o, max_size=2)|st.dictionaries(st.sampled_from(KEYS[dialect]), o, max_size=5), max_leaves=14)
    obj = st.dictionaries(st.sampled_from(KEYS[dialect]), val, min_size=1, max_size=6)
    @examples(150)
    @given(st.lists(obj, min_size=1, max_size=5))
    def check(objs):
        r = REPLIES[dialect](lambda k, o: None)
        try:
            for o in objs: r.feed(o)
            msg = r.finish()
        except ModelError: return
        assert type(msg['content']) is list and json.loads(jdumps(msg)) and all(isinstance(p.get('text', ''), str) for p in msg['content'])
    check()
