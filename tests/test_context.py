"What happens when a conversation grows too long for its model: it is seen, counted, kept, and can be undone."
import json, re
from wire import *

@pytest.fixture(scope='module')
def small():
    "A model server, and an agent's process whose model has a window of 6,000 tokens"
    with Models() as m: yield m

def config(home, base, **more):
    d = home/'.config/ramabana-acp'
    d.mkdir(parents=True, exist_ok=True)
    (d/'config.toml').write_text(f'[models.small]\nid = "fake"\nbase_url = "{base}/v1"\nwindow = 6000\n'+''.join(f'[{k}]\n{v}\n' for k,v in more.items()))

@contextmanager
def running(models, tmp, caps=None, **more):
    config(tmp, models.base, **more)
    with agent('--model', 'small', home=tmp, init=False, **BARE) as a:
        a.models = models
        a.initialize(caps)
        yield a

def summed(r): return 'You summarise' in str(r['messages'][0].get('content'))
def texts(r): return '\n'.join(strings(r['messages']))
LONG = 'word '*2800 # about 3,500 tokens

def test_a_conversation_that_fills_the_window_goes_on_from_a_summary(small, tmp_path):
    with running(small, tmp_path, dict(session=dict(compaction={}))) as a:
        s = a.session([[dict(text='The first answer. '+LONG)], [dict(text='The second answer. '+LONG)], [dict(text='## Goal\nCount the zebras.')], [dict(text='Third.')], [dict(text='Fourth.')]])
        for p in ('first: count zebras','second','third','fourth'): assert s.stop(p)=='end_turn'
        rs = s.requests
        i = next(i for i,r in enumerate(rs) if summed(r))
        assert 'first: count zebras' in texts(rs[i]) and not rs[i].get('tools')
        after = texts(rs[i+1])
        assert 'Count the zebras.' in after and 'third' in after and 'The first answer.' not in after
        assert 'Count the zebras.' in texts(rs[-1]) and texts(rs[-1]).count('Count the zebras.')==1, 'one summary is enough'
        ups = [u for _,u in s.ed.updates if u['sessionUpdate']=='compaction_update']
        assert [u['status'] for u in ups]==['in_progress','completed'] and ups[1]['summary'][0]['text'].startswith('## Goal')
        assert len({u['compactionId'] for u in ups})==1
        assert s.said().endswith('Third.Fourth.')

def test_an_editor_that_takes_no_such_updates_sees_the_summary_as_a_thought(small, tmp_path):
    with running(small, tmp_path) as a:
        s = a.session([[dict(text='One. '+LONG)], [dict(text='Two. '+LONG)], [dict(text='## Goal\nZebras.')], [dict(text='Three.')]])
        for p in 'abc': s.prompt(p)
        assert not [u for _,u in s.ed.updates if u['sessionUpdate']=='compaction_update']
        assert 'Zebras.' in s.said('agent_thought_chunk') and 'Zebras.' not in s.said()

def test_the_stored_conversation_keeps_every_word_and_goes_on_from_the_summary(small, tmp_path):
    with running(small, tmp_path, dict(session=dict(compaction={}))) as a:
        s = a.session([[dict(text='The first answer. '+LONG)], [dict(text='The second answer. '+LONG)], [dict(text='## Goal\nCount the zebras.')], [dict(text='Third.')]])
        for p in ('first','second','third'): s.prompt(p)
        first = next(u['messageId'] for _,u in s.ed.updates if u['sessionUpdate']=='agent_message_chunk')
        last = s.requests[-1]
        root,sid = s.root,s.sid
    with running(small, tmp_path, dict(session=dict(compaction={}))) as a:
        small.add(root, [[dict(text='Fourth.')]])
        again = Again(a, sid, root)
        shown = '\n'.join(strings(again.told))
        assert 'The first answer.' in shown and 'The second answer.' in shown
        assert [u['status'] for u in again.told if u['sessionUpdate']=='compaction_update']==['completed']
        again.prompt('fourth')
        now = small.seen[str(root)][-1]['messages']
        assert now[:len(last['messages'])]==last['messages'], 'byte for byte what it would have been sent'
        small.add(root, [[dict(text='Forked.')]])
        fork = a.request('session/fork', dict(sessionId=sid, cwd=str(root), mcpServers=[], messageId=first))['sessionId']
        a.prompt(fork, 'and now?')
        said = texts(small.seen[str(root)][-1])
        assert 'The first answer.' in said and 'zebras' not in said, 'a fork before the summary is without it'

def test_too_long_for_the_server_means_one_summary_and_one_more_try(small, tmp_path):
    too = [dict(http=400, body=json.dumps(dict(error=dict(message="This model's maximum context length is 4096 tokens", code='context_length_exceeded'))))]
    with running(small, tmp_path) as a:
        s = a.session([[dict(text='One.')], [dict(text='Two.')], too, [dict(text='## Goal\nZebras.')], [dict(text='Three.')]])
        s.prompt('a'*400); s.prompt('b'*400)
        assert s.stop('c')=='end_turn'
        assert [summed(r) for r in s.requests]==[False, False, False, True, False]
        assert s.said().endswith('Three.')

def test_a_server_that_finds_everything_too_long_ends_the_turn_with_a_name_and_the_session_goes_on(small, tmp_path):
    too = [dict(http=400, body=json.dumps(dict(error=dict(message='prompt is too long', code='context_length_exceeded'))))]
    with running(small, tmp_path) as a:
        s = a.session([[dict(text='One.')], [dict(text='Two.')], too, too, too, [dict(text='Three.')]])
        s.prompt('a'*400); s.prompt('b'*400)
        with pytest.raises(Remote) as e: s.prompt('c')
        assert e.value.data['code']=='turn_failed' and e.value.data['kind']=='context_overflow'
        assert sum(map(summed, s.requests))==1, 'the facts made the summary, since the model could not'
        assert s.stop('d')=='end_turn' and s.said().endswith('Three.')

def test_compact_is_a_command_that_shows_the_summary_and_takes_a_focus(small, tmp_path):
    with running(small, tmp_path) as a:
        s = a.session([[dict(text='One.')], [dict(text='Two.')], [dict(text='## Goal\nZebras.')], [dict(text='Three.')]])
        s.prompt('/compact')
        assert s.said().endswith('There is nothing to summarise yet.')
        s.prompt('a'*400); s.prompt('b'*400)
        s.prompt('/compact the stripes')
        assert 'the stripes' in texts(s.requests[-1]) and 'Zebras.' in s.said()
        s.prompt('c')
        assert 'Zebras.' in texts(s.requests[-1]) and 'a'*400 not in texts(s.requests[-1])

def test_context_says_what_fills_the_window(small, tmp_path):
    with running(small, tmp_path) as a:
        s = a.session([[dict(text='One.'), dict(usage=dict(input=1500, output=10))]])
        s.prompt('hello')
        s.prompt('/context')
        m = re.search(r'about ([\d,]+) tokens, (\d+) % of the window of small \(6,000\)', s.said())
        assert m and 1500<=int(m[1].replace(',', ''))<1700 and 25<=int(m[2])<=28
        for what in ('briefing','tools','your messages','answers'): assert f'- {what}:' in s.said()

def test_a_cancel_while_the_summary_is_made_leaves_the_conversation_as_it_was(small, tmp_path):
    with running(small, tmp_path, dict(session=dict(compaction={}))) as a:
        s = a.session([[dict(text='One. '+LONG)], [dict(text='Two. '+LONG)], [dict(sleep=30), dict(text='late')], [dict(text='## Goal\nZebras.')], [dict(text='Four.')]])
        s.prompt('a'); s.prompt('b')
        id = s.start('c')
        poll(lambda: any(u['sessionUpdate']=='compaction_update' for _,u in s.ed.updates))
        s.cancel()
        assert s.wait(id)['stopReason']=='cancelled'
        assert [u['status'] for _,u in s.ed.updates if u['sessionUpdate']=='compaction_update']==['in_progress','cancelled']
        assert s.stop('d')=='end_turn' and 'Two.' in texts(s.requests[-2]), 'nothing of it was lost'

def test_a_prompt_too_long_for_the_model_is_an_excerpt_and_a_file(small, tmp_path):
    with running(small, tmp_path) as a:
        s = a.session([[dict(text='One.')]])
        typed = 'BEGIN '+'x'*40_000+' END'
        s.prompt(typed)
        heard = texts(s.requests[-1])
        assert 'BEGIN' in heard and heard.rstrip().count(' END') and len(heard)<30_000
        rel = re.search(r'\.ramabana/attachments/\S+\.txt', heard)[0]
        assert (s.root/rel).read_text()==typed
        sid,root = s.sid,s.root
        s.close()
        again = Again(a, sid, root)
        assert typed in '\n'.join(strings(again.told)), 'the conversation shows it as typed'

def test_a_share_that_is_no_share_is_an_error_that_names_the_file(small, tmp_path):
    with running(small, tmp_path, context='compact_at = 7') as a:
        s = a.session([[dict(text='One.')]])
        with pytest.raises(Remote, match='compact_at must be a number'): s.prompt('a')

def test_a_retry_is_a_notice_where_the_editor_takes_notices(small, tmp_path):
    script = [[dict(http=529, headers={'retry-after':'0'}, body='{"error":{"message":"busy"}}')], [dict(text='There.')]]
    with running(small, tmp_path, dict(session=dict(notices={}))) as a:
        s = a.session(script)
        assert s.stop('a')=='end_turn' and s.said()=='There.'
        ns = [u for _,u in s.ed.updates if u['sessionUpdate']=='notice']
        assert len(ns)==1 and 'Asking again' in ns[0]['title'] and ns[0]['severity']=='warning'
        assert not s.said('agent_thought_chunk')
    with running(small, tmp_path/'two') as a:
        s = a.session(script)
        s.prompt('a')
        assert 'Asking again' in s.said('agent_thought_chunk') and not [u for _,u in s.ed.updates if u['sessionUpdate']=='notice']

def test_the_answer_says_what_the_turn_and_the_session_have_used(small, tmp_path):
    priced = 'base_url = "%s/v1"\nid = "fake"\nprices = {input = "2", output = "10", cache_read = "0.2", cache_write = "2.5"}' % small.base
    with running(small, tmp_path, **{'models.dear':priced}) as a:
        use = dict(usage=dict(input=1000, output=100))
        s = a.session([[dict(text='One.'), use], [dict(text='Two.'), use], [dict(text='Three.'), use]])
        now = lambda r: r['_meta']['ramabana']['usage']
        assert now(s.prompt('a'))['turn']['cost'] is None, 'a price that is not known is not guessed'
        s2 = a.session([[dict(text='One.'), use], [tool('ls', 'a'), use], [dict(text='Two.'), use]])
        a.request('session/set_config_option', dict(sessionId=s2.sid, configId='model', value='dear'))
        one = dict(inputTokens=1000, outputTokens=100, cachedReadTokens=0, cachedWriteTokens=0, thoughtTokens=0, requests=1, toolCalls=0, cost='0.003')
        assert now(s2.prompt('a'))==dict(turn=one, session=one)
        u = now(s2.prompt('b'))
        assert (u['turn']['requests'], u['turn']['toolCalls'], u['turn']['cost'], u['session']['cost'])==(2, 1, '0.006', '0.009')
        assert 'usage' not in s2.prompt('/cost')['_meta']['ramabana'] and 'This session has cost $0.009.' in s2.said(), 'a command uses nothing'
