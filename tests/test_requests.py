"A request that no server rejects for our fault: whatever a conversation has been through, its body breaks none of the rules of `ramabana_acp.models.rules`."
import base64, json, struct, zlib
from wire import *
from width import examples, few_or_many, given, wide
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from ramabana_acp.core import jdumps
from ramabana_acp.models.claude import ClaudeProvider, claude_body
from ramabana_acp.models.fit import legal_tools, size_of
from ramabana_acp.models.messages import assistant, call, calls, media, pair, result, results, text, thinking, user
from ramabana_acp.models.openai import OpenAIProvider, chat_body
from ramabana_acp.models.profiles import PROFILES
from ramabana_acp.models.provider import Provider
from ramabana_acp.models.responses import responses_body
from ramabana_acp.models.rules import RULES, breaches, strict
from ramabana_acp.models.specs import ModelSpec
from ramabana_acp.testing.models import Chat, Messages
from ramabana_acp.testing.responses import Responses

def spec(id, api='openai', **kw): return ModelSpec(f'x/{id}', 'x', id, api=api, accepts=('text','image','audio'), **kw)
MODELS = {**{id:('messages', spec(id, 'anthropic', window=w, max_output=n)) for id,w,n in (('claude-opus-5-5', 10**6, 128_000), ('claude-haiku-4-5', 200_000, 64_000), ('glm-5', 128_000, 2000))},
    'gpt-5.4':('chat', spec('gpt-5.4', base_url='https://api.openai.com/v1')), 'deepseek-v4':('chat', spec('deepseek-v4', base_url='https://api.deepseek.com')),
    'local':('chat', spec('local', base_url='http://127.0.0.1:1/v1')), **{k:('chat', spec(k, base_url=f'https://{k}.example/v1', profile=PROFILES[k])) for k in ('mistral','gemini')},
    'gpt-6':('responses', spec('gpt-6', 'responses'))}
every = pytest.mark.parametrize('id', MODELS)

def body(id, history, system='Be kind.', tools=(), effort=None):
    "The body of a request to model `id`, as a server reads it"
    dialect,sp = MODELS[id]
    req,_ = Provider(sp).request(history, system, tools, effort)
    mk = dict(messages=claude_body, chat=chat_body, responses=responses_body)[dialect]
    return json.loads(jdumps(mk(sp, *req)))

# ---------------------------------------------------------------- pictures

def png(w=1, h=1, pad=0):
    "A whole PNG of `w` x `h`, and `pad` bytes larger than it need be"
    def chunk(k, d): return struct.pack('>I', len(d))+k+d+struct.pack('>I', zlib.crc32(k+d))
    more = chunk(b'tEXt', b'Comment\0'+b'x'*pad) if pad else b''
    return b'\x89PNG\r\n\x1a\n'+chunk(b'IHDR', struct.pack('>IIBBBBB', w, h, 8, 0, 0, 0, 0))+more+chunk(b'IDAT', zlib.compress((b'\0'*(w+1))*h, 1))+chunk(b'IEND', b'')

GIF = b'GIF89a'+struct.pack('<HH', 9, 9)+bytes(6)
MEDIA = [media(b) for b in (png(), png(2500, 2), png(9000, 100), GIF, GIF+b'NETSCAPE2.0', b'\xff\xd8\xff\xe0', b'\0\0\0\x18ftypheic', b'%PDF-1.7', b'%PDF-1.7 /Encrypt 7 0 R',
    b'RIFF\0\0\0\0WAVE', b'OggS', b'\x89PNG\r\n\x1a\n', b'\0\1\2')]+[dict(type='image', mime='image/png', data=GIF), dict(type='image', mime='image/png', data=b'')]

# ---------------------------------------------------------------- transcripts

words = st.sampled_from(['', ' ', '\n\t', '\x1c\x85', '\xa0', 'hi', 'a\ud800b', '\udc00', 'é\u2028😀', 'x'*300, '{"a":', '\0'])
ids = st.sampled_from(['t1','t2','t3','call_'+'x'*60,'call_'+'x'*61,'a b','','é','\ud800',None])
names = st.sampled_from(['ls','view_file','my.tool','','x'*200,'\ud800','ünï'])
args = st.sampled_from([{}, {'path':'a'}, {'p':'\udfff', '\ud800':1}, {'a':[1, {'b':float('nan')}]}, None, [1], 'x'])
shown = st.lists(st.sampled_from(MEDIA), max_size=2)
thought = st.one_of(st.builds(thinking, words), st.builds(thinking, words, st.just('seal')), st.just(thinking('', redacted='box')),
    st.just(thinking('', item=dict(type='reasoning', id='rs_1', summary=[], encrypted_content='x'), by='gpt-6')), st.builds(lambda s: thinking(s, field='reasoning_content'), words), st.builds(lambda s: thinking(s, field='reasoning'), words))
def a_call(id, name, args, bad): return call(id, name, args, 'the arguments are not valid JSON' if bad else None)
part = st.one_of(words.map(text), thought, st.builds(a_call, ids, names, args, st.booleans()))
asked = st.builds(user, words, shown)
stops = st.sampled_from(['end','calls','length','refusal','cut','cancelled','pause'])

@st.composite
def step(draw):
    "An answer, and the results of its calls: all of them, some, none, in another order, twice, or late"
    m = assistant(draw(st.lists(part, max_size=5)), draw(stops))
    rs = [result(c, draw(words), draw(st.booleans()), draw(shown)) for c in calls(m)]
    how = draw(st.sampled_from(['all','all','all','none','some','shuffled','twice','late','strange']))
    if how=='none' or not rs and how!='strange': return [m]
    if how=='some': rs = rs[:-1]
    if how=='shuffled': rs = rs[::-1]
    if how=='twice': return [m, results(rs), results(rs)]
    if how=='late': return [m, draw(asked), results(rs)]
    if how=='strange': rs = [*rs, dict(id='nobody', name='ls', text='an answer to nothing', ok=True)]
    return [m, results(rs)]

@st.composite
def transcripts(draw):
    "A conversation: turns that ended well, were cancelled, cut or refused; forked, rewound and opened again"
    h = []
    for _ in range(draw(st.integers(1, 5))):
        what = draw(st.sampled_from(['turn','turn','turn','fork','rewind','reopen','compact']))
        if what=='turn':
            h = h+[draw(asked)]
            for _ in range(draw(st.integers(0, 3))): h = h+draw(step())
        elif what=='fork': h = h[:draw(st.integers(0, len(h)))]+[draw(asked)]
        elif what=='rewind': h = h[:-1]
        elif what=='reopen': h = pair(h)
        else: h = [user('Summary: much was done.')]+h[draw(st.integers(0, len(h))):]
    return h+draw(st.sampled_from([[], [user('on')], [user(' ')]] if not h or h[-1].get('stop')!='pause' else [[user('on')]]))

kinds = st.sampled_from(['string','integer','array','object','any',['string','null'],['array','null'],None,7])
@st.composite
def schema(draw, deep=2):
    "Something between a JSON Schema and what people write instead"
    s = {}
    if draw(st.booleans()): s['type'] = draw(kinds)
    if draw(st.booleans()): s[draw(st.sampled_from(['enum','required','description','minimum','$schema','additionalProperties','const','not']))] = draw(
        st.sampled_from([['a','b'], [], True, 'x', {}, ['a', 1], None, 1, ['p','p']]))
    if deep and draw(st.booleans()): s['properties'] = draw(st.one_of(st.dictionaries(st.sampled_from(['a','b c','x.y','é','','k'*80]), schema(deep-1), max_size=3), st.just([])))
    if deep and draw(st.booleans()): s['items'] = draw(st.one_of(schema(deep-1), st.lists(schema(deep-1), max_size=2)))
    if deep and draw(st.booleans()): s[draw(st.sampled_from(['anyOf','oneOf','allOf']))] = draw(st.one_of(st.lists(schema(deep-1), max_size=3), st.just('x')))
    return draw(st.sampled_from([s, s, s, {}, None, [], True]))

tools = st.lists(st.tuples(st.sampled_from(['ls','my.tool','my tool','my_tool','x'*64,'x'*200,'x.'*99,'','é']), schema(), st.sampled_from(['List', '', '\ud800', None])), max_size=4,
    unique_by=lambda t: t[0]).map(lambda ts: [dict(name=n, input_schema=s, **({} if d is None else dict(description=d))) for n,s,d in ts])
efforts = st.sampled_from([None,'none','low','high','max'])

@few_or_many(15, 300)
@every
def test_no_conversation_breaks_a_rule_of_its_server(id, n):
    @examples(n)
    @given(transcripts(), words, tools, efforts)
    def check(h, system, tools, effort):
        b = body(id, h, system, tools, effort)
        assert not breaches(MODELS[id][0], b), (h, b)
    check()

@wide(20, 500, tools)
def test_a_mended_schema_is_one_by_the_book_and_stays_as_it_is(tools):
    ts,back = legal_tools(tools)
    for t in ts: Draft202012Validator.check_schema(t['input_schema'])
    assert legal_tools(ts)[0]==ts and all(a is b for a,b in zip(legal_tools(ts)[0], ts))
    assert [back.get(t['name'], t['name']) for t in ts]==[t['name'] for t in tools]

@wide(20, 200, transcripts())
def test_what_is_sent_never_changes_what_is_kept(h):
    from copy import deepcopy
    old = deepcopy(h)
    for id in MODELS: body(id, h)
    assert repr(h)==repr(old)

# ---------------------------------------------------------------- the judge is one

BROKEN = {
    'messages': [dict(max_tokens=9, messages=[]), dict(messages=[dict(role='user', content='x')]), dict(max_tokens=9, messages=[dict(role='user', content=' ')]),
        dict(max_tokens=9, messages=[dict(role='user', content='x')], thinking=dict(type='enabled', budget_tokens=9))],
    'chat': [dict(messages=[]), dict(messages=[dict(role='user', content='x'), dict(role='tool', tool_call_id='t', content='')]), dict(messages=[dict(role='user', content='x\ud800')])],
    'responses': [dict(input=[]), dict(input=[dict(role='user', content='x'), dict(type='function_call', call_id='t', name='ls', arguments='{}')])]}

@pytest.mark.parametrize('dialect,body', [(d, b) for d,bs in BROKEN.items() for b in bs])
def test_the_table_finds_what_is_wrong(dialect, body): assert breaches(dialect, body)

@pytest.mark.parametrize('dialect', RULES)
def test_every_rule_names_its_source(dialect):
    assert all(r.source.strip() and callable(r.check) for r in RULES[dialect]) and len({r.name for r in RULES[dialect]})==len(RULES[dialect])

# ---------------------------------------------------------------- C139: pictures

@pytest.mark.parametrize('id,n,left', [('claude-haiku-4-5', 101, 51), ('claude-opus-5-5', 101, 101), ('claude-opus-5-5', 601, 301), ('gpt-5.4', 501, 251)])
def test_C139_more_pictures_than_a_server_takes_are_left_out_oldest_first(id, n, left):
    b = body(id, [user('', [png()]) for _ in range(n)])
    s = json.dumps(b['messages'])
    assert not breaches(MODELS[id][0], b) and s.count('"type": "image')==left
    assert left==n or s.index('left out')<s.index('"type": "image')

@pytest.mark.parametrize('id', [id if id in ('claude-opus-5-5','gpt-5.4','gpt-6') else pytest.param(id, marks=pytest.mark.slow) for id in MODELS]) # one of each dialect
def test_C139_pictures_that_are_too_large_together_stay_behind_with_a_word(id):
    pic = png(9, 9, 3_600_000)
    b = body(id, [user(f'{i}', [pic]) for i in range(12)])
    assert not breaches(MODELS[id][0], b) and 'too large together' in json.dumps(b)

@pytest.mark.parametrize('id', ['claude-opus-5-5','gpt-5.4'])
def test_C139_what_has_to_go_does_not_change_with_each_new_picture(id):
    sp = MODELS[id][1]._replace(profile=dict(media=dict(total=10_000)))
    h,gone = [user('', [png(9, 9, 1000)]) for _ in range(40)],[]
    for n in range(1, 40): gone.append(str(Provider(sp).request(h[:n])[0].history).count('left out'))
    assert gone==sorted(gone) and gone[-1]>30 and len({*gone})<12

def test_C139_a_tool_that_returns_pictures_is_held_to_the_limits_too():
    c = call('t1', 'screen', {})
    b = body('claude-opus-5-5', [user('look'), assistant([c], 'calls'), results([result(c, 'a screen', media=[media(png(9000, 9)), media(png())])])])
    kinds = [o['type'] for o in b['messages'][2]['content'][0]['content']]
    assert kinds==['text','text','image'] and '9000 x 9' in json.dumps(b) and not breaches('messages', b)

@pytest.mark.parametrize('w,h', [(1, 1), (8000, 2), (640, 480)])
def test_C139_the_size_of_a_picture_is_read_from_its_header(w, h): assert size_of(png(w, h))==(w, h)

C139 = {'big.png':png(9000, 100), 'x.jpg':b'\0\0\0\x18ftypheic'+bytes(99), 'f.png':png(9, 9, 6_000_000)}
looks = [dict(tool='view_file', id=i, args=dict(path=p)) for i,p in zip('abc', C139)]
refused = dict(http=400, body='{"error":{"message":"messages.0.content.1.image.source.base64: image exceeds 5 MB maximum"}}')

@pytest.fixture(scope='module')
def one_claude():
    "A strict server, and an agent whose model it serves as Claude: its library takes long to load, so all tests share it"
    with FakeModel() as m:
        with agent('--model', 'anthropic/claude-opus-5-5', env=dict(ANTHROPIC_BASE_URL=m.base, ANTHROPIC_API_KEY='sk-ant-test-0123456789'), **BARE) as a: yield m,a

@pytest.fixture
def claude(one_claude):
    "`claude(script)`: the server, which plays `script` and has seen nothing yet, and the agent"
    m,a = one_claude
    def play(script):
        m.script[:] = script
        m.requests.clear()
        return m,a
    yield play
    a.verify()

def block(data, mime='image/png'): return dict(type='image', mimeType=mime, data=base64.b64encode(data).decode())

def test_C139_a_picture_over_the_limits_is_a_word_to_the_model_and_one_that_is_refused_is_not_sent_again(claude):
    m,a = claude([looks, [refused], [dict(text='ok')], [refused], [dict(text='fine')], [dict(text='on')]])
    s = a.session(files=C139)
    with pytest.raises(Remote, match='image exceeds'): s.prompt('a')
    assert s.stop('b')=='end_turn' and s.said()=='ok'
    got = [r for o in m.requests[1].body['messages'] for r in o['content'] if r['type']=='tool_result']
    assert len(got)==3 and all(isinstance(r['content'], str) and r['content'] for r in got)
    assert s.stop([dict(type='text', text='look'), block(C139['big.png']), block(C139['f.png']), block(png())])=='end_turn' and s.said()=='okfine'
    assert s.stop('d')=='end_turn'
    sent = [json.dumps(r.body['messages']) for r in m.requests[-3:]]
    assert [x.count('"type":"image"'.replace(':', ': ')) for x in sent]==[1, 0, 0] and '9000 x 100 pixels' in sent[0] and 'larger than' in sent[0]
    assert not [b for r in m.requests for b in breaches('messages', r.body)]

# ---------------------------------------------------------------- C140: half a surrogate pair

def halved(dialect):
    "A script whose model asks for the file `a` and half a character"
    d = dialect({}, 9)
    return [[dict(raw=d.start()+d.tool(dict(tool='view_file', id='t1', args='{"path":"a\\ud800"}'))+d.finish('calls'))], [dict(text='ok')], [dict(text='still')]]

def typed_half(a):
    "A session in which half a character was typed and asked for"
    s = a.session(files={'x':'1'})
    a.raw(json.dumps(dict(jsonrpc='2.0', id=77, method='session/prompt', params=dict(sessionId=s.sid, prompt=[dict(type='text', text='a\ud800b')]))).encode()+b'\n')
    assert s.wait(77)['stopReason']=='end_turn' and s.said()=='ok'
    return s

def goes_on(a, s, m):
    t = Again(a, s.sid, s.root)
    assert t.stop('and now?')=='end_turn' and 'still' in t.said()
    assert len(m.requests)==3 and not [x for r in m.requests for x in strict(r.body)]
    assert 'a\ufffdb' in json.dumps(m.requests[0].body, ensure_ascii=False)

def test_C140_half_a_surrogate_pair_from_either_side_is_mended_and_the_conversation_goes_on(claude):
    m,a = claude(halved(Messages))
    s = typed_half(a)
    s.close()
    goes_on(a, s, m)

C140 = dict(chat=('openai/gpt-4o', Chat), messages=('anthropic/claude-opus-5-5', Messages), responses=('resp/m', Responses))
@pytest.mark.parametrize('dialect', ['chat', *(pytest.param(d, marks=pytest.mark.slow) for d in ('messages','responses'))])
def test_C140_half_a_surrogate_pair_is_mended_and_the_conversation_goes_on_in_another_process(dialect, tmp_path):
    model,Dialect = C140[dialect]
    with FakeModel(halved(Dialect)) as m:
        (tmp_path/'config.toml').write_text(f'[providers.resp]\nbase_url = "{m.base}/v1"\napi = "responses"\nkey_env = "OPENAI_API_KEY"\n')
        env = dict(OPENAI_BASE_URL=f'{m.base}/v1', OPENAI_API_KEY='sk-test-0123456789abcdef', ANTHROPIC_BASE_URL=m.base, ANTHROPIC_API_KEY='sk-ant-test-0123456789')
        args,kw = ('--cfg', tmp_path, '--model', model),dict(env=env, home=tmp_path/'home', **BARE)
        with agent(*args, **kw) as a: s = typed_half(a)
        with agent(*args, **kw) as a: goes_on(a, s, m)
        assert {r.dialect for r in m.requests}=={dialect}

# ---------------------------------------------------------------- C142: the cache

class Cache:
    "Anthropic's cache: an entry is made at each mark, and from each mark twenty blocks are looked back for one"
    def __init__(self): self.entries = set()
    def hit(self, body):
        "How many bytes of the request are read from the cache, and how many it has"
        def bare(o): return json.dumps({k:v for k,v in o.items() if k!='cache_control'}, sort_keys=True)
        blocks = [('tools', o) for o in body.get('tools', ())]+[('system', o) for o in body.get('system', ())]+[(m['role'], o) for m in body['messages'] for o in m['content']]
        flat,seen = [f'{r}{bare(o)}' for r,o in blocks],[]
        for s in flat: seen.append(hash((seen[-1] if seen else 0, s)))
        at = [i for i,(_,o) in enumerate(blocks) if 'cache_control' in o]
        best = max((i-k+1 for i in at for k in range(min(20, i+1)) if seen[i-k] in self.entries), default=0)
        self.entries |= {seen[i] for i in at}
        return sum(map(len, flat[:best])),sum(map(len, flat))

def cached(requests):
    "Of each request but the first, how much of the one before it was read from the cache"
    c,was,res = Cache(),0,[]
    for r in requests:
        hit,n = c.hit(r.body)
        res.append(hit/was if was else None)
        was = n
    return res[1:]

def test_C142_the_prefix_is_marked_and_stays_through_twenty_rounds_and_the_next_prompt(claude):
    look = lambda i: [dict(think='hm'), dict(tool='view_file', id=f'a{i}', args=dict(path='x'))]
    m,a = claude([*map(look, range(20)), [dict(text='done')], [dict(text='again')]])
    s = a.session(files={'x':'1\n'})
    assert s.stop('go')=='end_turn' and s.stop('more')=='end_turn'
    rs = m.requests
    assert len(rs)==22 and not [b for r in rs for b in breaches('messages', r.body)]
    assert len({json.dumps([r.body['system'], r.body['tools']]) for r in rs})==1
    def flat(r): return [(o['role'], json.dumps({k:v for k,v in b.items() if k!='cache_control'})) for o in r.body['messages'] for b in o['content']]
    for one,two in zip(rs, rs[1:]): assert flat(two)[:len(flat(one))]==flat(one)
    assert min(cached(rs))>=.9

def test_C142_a_turn_with_more_blocks_than_the_server_looks_back_is_still_read_from_the_cache(claude):
    many = [dict(tool='view_file', id=f'a{i}', args=dict(path='x')) for i in range(30)]
    again = [dict(tool='view_file', id=f'b{i}', args=dict(path='x')) for i in range(30)]
    m,a = claude([many, again, [dict(text='done')], [dict(text='again')]])
    s = a.session(files={'x':'1\n'})
    assert s.stop('go')=='end_turn' and s.stop('more')=='end_turn'
    assert len(m.requests)==4 and min(cached(m.requests))>=.9

def test_C142_the_measure_sees_a_prefix_that_changes(claude):
    m,a = claude([[dict(text='a')], [dict(text='b')]])
    s = a.session()
    s.prompt('go'); s.prompt('more')
    m.requests[1].body['system'][0]['text'] += ' It is noon.'
    assert cached(m.requests)[0]<.9

# ---------------------------------------------------------------- C145 and what else is in a request

def test_C145_one_odd_tool_does_not_spoil_the_others():
    odd = [dict(name='ls', description='List', input_schema=dict(type='object', properties={})),
        dict(name='mode', description='', input_schema={'properties':{'mode':{'enum':['a','b']}}}), dict(name='none', description='', input_schema={}),
        dict(name='a.'*100, description='', input_schema={'anyOf':[{'type':'object', 'properties':{'x':{'type':'string'}}}]})]
    for id in MODELS: assert not breaches(MODELS[id][0], body(id, [user('x')], tools=odd))

@pytest.mark.parametrize('effort', [None,'none','low','medium','high','xhigh','max'])
@pytest.mark.parametrize('id', ['claude-opus-5-5','claude-fable-5-2','claude-sonnet-5-5','claude-opus-5','claude-haiku-5-5','claude-opus-4-6','claude-haiku-4-5-20251001','claude-3-7-sonnet-20250219'])
def test_thinking_is_asked_for_as_the_model_of_that_version_wants_it(id, effort):
    b = claude_body(spec(id, 'anthropic', max_output=64_000), [user('x')], effort=effort)
    t,new = b.get('thinking', {}),id[7:].split('-')[1] in '5' or '4-6' in id
    assert t.get('type') in ((None,'adaptive','disabled') if new else (None,'enabled','disabled'))
    assert ('output_config' in b)==(t.get('type')=='adaptive' and effort is not None)
    if effort not in (None,'none'): assert t['type']==('adaptive' if new else 'enabled')
    if 'opus-5-5' in id or 'fable' in id: assert t['type']=='adaptive', 'it cannot be turned off'
    if t.get('type')=='adaptive': assert t['display']=='summarized', 'else nothing is seen between two calls'
    assert ('block_binding' in t)==(t.get('type')=='adaptive' and any(v in id for v in ('5-5','5-2')))
    assert not breaches('messages', b)

def test_documents_and_pictures_go_in_a_prompt_and_pictures_in_the_result_of_a_tool():
    c = call('t1', 'screen', {})
    h = [user('look', [png(), b'%PDF-1.7']), assistant([thinking('hm', 'seal'), thinking('', redacted='box'), c], 'calls'), results([result(c, 'a screen', media=[media(png())])])]
    with FakeModel([[dict(text='seen')]]) as m: list(ClaudeProvider(spec('claude-opus-5-5', 'anthropic', base_url=m.base)).stream(h))
    u,v,w = m.requests[0].body['messages']
    assert [o['type'] for o in u['content']]==['text','image','document'] and u['content'][2]['source']['media_type']=='application/pdf'
    assert v['content'][:2]==[dict(type='thinking', thinking='hm', signature='seal'), dict(type='redacted_thinking', data='box')]
    assert [o['type'] for o in w['content'][0]['content']]==['text','image']

def test_parallel_calls_come_and_go_back_together():
    with FakeModel([[dict(tool='ls', id='t1', args={}), dict(tool='ls', id='t2', args={})], [dict(text='ok')]]) as m:
        p = ClaudeProvider(spec('claude-opus-5-5', 'anthropic', base_url=m.base))
        msg = list(p.stream([user('go')]))[-1][1]
        list(p.stream([user('go'), msg, results([result(c, c['id']) for c in calls(msg)])]))
    assert [(o['tool_use_id'], o['content']) for o in m.requests[1].body['messages'][2]['content']]==[('t1','t1'), ('t2','t2')]

def test_tokens_are_counted_by_the_server_that_can():
    h = [user('look', [png()]), assistant([thinking('hm', 'seal'), text('a')]), user('b')]
    with FakeModel() as m:
        p = ClaudeProvider(spec('claude-opus-5-5', 'anthropic', base_url=m.base, profile=dict(block_binding=True)))
        n,more = p.count(h, 'Be kind.'),p.count([*h[:-1], user('b'*4000)], 'Be kind.')
    assert more-n in range(990, 1010) and OpenAIProvider(spec('gpt-5.4')).count(h) is None

def test_a_server_that_binds_thoughts_is_told_to_drop_what_does_not_fit():
    with FakeModel([[dict(text='a')], [dict(text='b')]]) as m:
        for q in (True, False): list(ClaudeProvider(spec('claude-opus-5-5', 'anthropic', base_url=m.base, profile=dict(block_binding=q))).stream([user('x')]))
    assert [r.headers.get('anthropic-beta') for r in m.requests]==['thinking-binding-controls-2026-08-01', None]
    assert [r.body['thinking'].get('block_binding') for r in m.requests]==[dict(prefix_mismatch_behavior='drop_block'), None]
