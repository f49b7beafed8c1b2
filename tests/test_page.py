"""The statements of the specifying page that need no process: `blocks`, `Bridge`, `EditorHost`, `mk_agent`, and its own cells."""
import asyncio, base64, inspect, os, threading, time
from pathlib import Path
import acp, pytest
from fastcore.nbio import read_nb
from ramabana_acp import (AcpAgent, Activity, Agent, Approvals, Bridge, DFLT_TIMEOUT, EditorHost, KIND, PLAN, Session, TOOL, WorkspaceHost, blocks, main, mk_agent,
    serve, tools_for)
from ramabana_acp.core import Err, InvalidParams, ToolError
from ramabana_acp.models.specs import ModelSpec
from ramabana_acp.testing.editor import Editor, Inside

root = Path(__file__).parents[1]
b64 = lambda b: base64.b64encode(b).decode()

def test_R36_an_embedded_text_becomes_a_file_element_with_its_uri():
    r = acp.resource_block(acp.embedded_text_resource('file:///a.py', 'x = 1\n'))
    assert blocks([r])==('<file uri="file:///a.py">\nx = 1\n\n</file>', [])

def test_R37_an_embedded_binary_becomes_one_line_naming_uri_and_type():
    r = acp.resource_block(acp.embedded_blob_resource('file:///a.zip', b64(b'\0\1'), mime_type='application/zip'))
    text,media = blocks([r])
    assert media==[] and '\n' not in text and 'file:///a.zip' in text and 'application/zip' in text

def test_R40_audio_is_decoded_like_an_image():
    assert blocks([acp.audio_block(b64(b'RIFFxxxx'), 'audio/wav'), acp.text_block('what is said?')])==('what is said?', [b'RIFFxxxx'])

def test_R41_what_the_model_does_not_take_is_named_and_left_out():
    spec = ModelSpec('x/y', 'x', 'y', accepts=('text',))
    text,media = blocks([acp.image_block(b64(b'\x89PNG\r\n\x1a\n'), 'image/png'), acp.text_block('see')], spec)
    assert media==[] and 'image' in text and 'image/png' in text and text.endswith('see')

def test_R42_an_unknown_capability_counts_as_accepted():
    assert blocks([acp.image_block(b64(b'x'), 'image/png')], ModelSpec('x/y', 'x', 'y'))[1]==[b'x']

CELLS = dict(blocks=2, updates=1, host=2, session=1)   # page cells a chapter holds
def page_cells():
    "The test cells of the page, where it is at hand"
    p = next((root.parent/'shared/sources').glob('004_*.txt'), None) if (root.parent/'shared').is_dir() else None
    if not p: return None
    return [c.strip() for c in p.read_text().split('``` python\n')[1:] for c in [c.split('```')[0]] if 'test_eq' in c]

def test_R43_the_cells_of_the_page_stand_in_our_chapters_unchanged():
    ours = {n:[c.source.strip() for c in read_nb(root/'nbs/editor'/f).cells if c.cell_type=='code'] for n,f in
        dict(blocks='04_blocks.ipynb', updates='05_updates.ipynb', host='03_host.ipynb', session='06_session.ipynb').items()}
    for n,k in CELLS.items(): assert sum('test_eq' in s for s in ours[n])>=k
    if (want := page_cells()) is None: return   # the project stands without the page
    assert len(want)==6
    flat = lambda s: [l.strip() for l in s.splitlines()]   # the stored page has lost its indentation
    every = [flat(s) for ss in ours.values() for s in ss]
    assert [c for c in want if flat(c) not in every]==[]

@pytest.fixture
def loop():
    "An event loop on a thread of its own, as the protocol has one"
    l = asyncio.new_event_loop()
    t = threading.Thread(target=l.run_forever, daemon=True); t.start()
    yield l
    async def rest():
        "End what has been begun, also what was posted last and has not taken its first step"
        ts = asyncio.all_tasks()-{asyncio.current_task()}
        for o in ts: o.cancel()
        await asyncio.gather(*ts, return_exceptions=True)
    asyncio.run_coroutine_threadsafe(rest(), l).result(20)
    l.call_soon_threadsafe(l.stop); t.join(); l.close()

async def answer(x, wait=0): await asyncio.sleep(wait); return x
async def fails(): raise Err('no')

def test_R44_call_blocks_until_the_reply_and_returns_it(loop): assert Bridge(None, 's', loop).call(answer(5, .01))==5

def test_R45_call_raises_what_the_client_answered_with(loop):
    with pytest.raises(Err, match='no'): Bridge(None, 's', loop).call(fails())

def test_R46_call_raises_when_time_is_up_and_cancels_the_request(loop):
    ended = threading.Event()
    async def silent():
        try: await asyncio.sleep(60)
        except asyncio.CancelledError: ended.set(); raise
    with pytest.raises(TimeoutError): Bridge(None, 's', loop, timeout=.02).call(silent())
    assert ended.wait(20)
    with pytest.raises(TimeoutError): Bridge(None, 's', loop).call(silent(), .02)

def test_R47_posts_return_at_once_and_arrive_in_order(loop):
    br,got = Bridge(None, 's', loop),[]
    async def take(i): got.append(i)
    t = time.monotonic()
    br.post(answer(0, 60))
    assert time.monotonic()-t<20
    for i in range(200): br.post(take(i))
    br.call(answer(0, .05))
    assert got==list(range(200))
    for f in list(br.posts): f.cancel()

def test_R48_five_minutes_everywhere():
    assert DFLT_TIMEOUT==300
    for f in (Bridge, Session, AcpAgent, mk_agent): assert inspect.signature(f).parameters['timeout'].default==DFLT_TIMEOUT

def test_R49_the_editor_host_is_a_workspace_host_that_routes_to_the_client(tmp_path, loop):
    (tmp_path/'a').write_text('disk'); ed = Editor(tmp_path, buffers={'a':'buffer'})
    h = EditorHost([tmp_path])
    assert isinstance(h, WorkspaceHost)
    h.attach(Bridge(Inside(ed), 's', loop), ed.caps)
    assert (h.read('a'), h.text_at('a')) == ('buffer', 'buffer')
    h.write('a', 'new')
    assert h.run_cmd('echo hi')[1].strip()=='hi'
    assert {m for m,_ in ed.asked}>={'fs/read_text_file','fs/write_text_file','terminal/create'}

def test_R50_unattached_it_behaves_as_the_plain_host(tmp_path):
    (tmp_path/'a').write_text('x\n')
    h,p = EditorHost([tmp_path]),WorkspaceHost([tmp_path])
    assert (h.can_read, h.can_write, h.can_run)==(False, False, False)
    for o in (h, p): assert (o.read('a'), o.text_at('nothing'), o.read('../x'), o.run_cmd('printf 5; exit 3'))==('x\n', '', None, (3, '5'))

def test_R64_mk_agent_gives_a_gated_agent_on_an_editor_host(tmp_path):
    agent,host = mk_agent([tmp_path], approve='edits', timeout=7)
    assert isinstance(agent, Agent) and isinstance(host, EditorHost) and isinstance(agent.activity, Activity)
    assert (agent.approvals.mode, agent.approvals.timeout, agent.approvals.host)==('edits', 7, host)

def test_R65_nothing_outside_the_roots_is_read_and_nothing_of_the_project_is_run(tmp_path):
    (tmp_path/'out').write_text('x'); (tmp_path/'in/.ramabana/extensions').mkdir(parents=True)
    (tmp_path/'in/.ramabana/extensions/e.py').write_text(f'open({str(tmp_path/"ran")!r}, "w")')
    agent,host = mk_agent([tmp_path/'in'])
    assert host.read('../out') is None and agent.tools
    assert not (tmp_path/'ran').exists()

def test_R66_further_arguments_reach_the_agent(tmp_path):
    seen = []
    agent,_ = mk_agent([tmp_path], on_activity=seen.append, session_id='mine', max_steps=3)
    agent.activity.start('view_file', dict(path='a'))
    assert (agent.session_id, agent.max_steps, len(seen))==('mine', 3, 1)

def test_mk_agent_needs_neither_key_nor_network_and_writes_nothing(tmp_path, monkeypatch):
    for k in list(os.environ):
        if k.endswith('_API_KEY') or k.endswith('_BASE_URL'): monkeypatch.delenv(k)
    for k in ('HOME','XDG_CONFIG_HOME','XDG_STATE_HOME'): monkeypatch.setenv(k, str(tmp_path/'home'))
    (tmp_path/'ws').mkdir()
    agent,host = mk_agent([tmp_path/'ws'])
    assert (agent.commands() and agent.tools) and not (tmp_path/'home').exists()
    for kw in (dict(vault=True), dict(pii='redact')):
        with pytest.raises(InvalidParams): mk_agent([tmp_path/'ws'], **kw)

def test_the_names_of_the_page_can_be_imported_from_the_package():
    assert callable(main) and inspect.iscoroutinefunction(serve) and callable(tools_for) and KIND and TOOL and PLAN and Approvals
