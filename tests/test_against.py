"The rows of `against.py`: our agent fails none, and each can fail"
import against
from wire import *

OURS = [*PYTHON, '--model', 'openai/fake-model'] # its library loads faster than the other one
BAD = [sys.executable, '-SE', str(Path(__file__).parent/'bad_agent.py')]
FAULTS = {
    'ACP-TRANSPORT-001':'noise', 'ACP-TRANSPORT-002':'latin 1', 'ACP-JSONRPC-001':'text ids', 'ACP-JSONRPC-002':'both', 'ACP-JSONRPC-003':'answers notes', 'ACP-JSONRPC-004':'wrong code',
    'ACP-JSONRPC-005':'dies', 'ACP-INIT-001':'text version', 'ACP-INIT-002':'version 2', 'ACP-INIT-003':'echo', 'ACP-INIT-004':'nameless', 'ACP-SCHEMA-001':'bad update',
    'ACP-SCHEMA-002':'extra key', 'ACP-SESSION-001':'empty session', 'ACP-SESSION-002':'same session', 'ACP-PROMPT-001':'reason', 'ACP-PROMPT-002':'other session', 'ACP-PROMPT-003':'no links',
    'ACP-CANCEL-001':'cancel error', 'ACP-CANCEL-002':'late', 'ACP-LOAD-003':'null', 'ACP-DELETE-002':'strict delete', 'ACP-CONFIG-003':'boolean', 'ACP-AUTH-001':'twice', 'ACP-AUTH-002':'terminal',
    'ACP-AUTH-005':'sign in', 'ACP-CLIENTCAP-001':'files', 'ACP-CLIENTCAP-002':'terminals', 'ACP-CLIENTCAP-003':'questions', 'ACP-EXT-001':'silent', 'ACP-META-001':'no meta',
    'ACP-ERROR-001':'two lines', 'ACP-SHUTDOWN-001':'stays'}

def test_every_row_that_binds_has_a_fault_that_breaks_it():
    tiers = {r[0]:r[1] for r in against.ROWS}
    assert set(FAULTS)=={k for k,t in tiers.items() if t in ('MANDATORY','ADVISORY')}
    assert sorted(map(list(tiers.values()).count, ('MANDATORY','ADVISORY')))==[12, 21] and len(tiers)==len(against.ROWS)

@pytest.fixture(scope='module')
def kit():
    with against.Kit() as k: yield k

@pytest.fixture(scope='module')
def pool():
    p = {}
    yield p
    for a in p.values(): against.end(a)

@pytest.fixture(scope='module')
def good_ones():
    p = {}
    yield p
    for a in p.values(): against.end(a)

def judged(kit, cmd, id, patience=60, pool=None): return against.judge(cmd, next(r for r in against.ROWS if r[0]==id), patience, kit, pool, .02)

@pytest.mark.parametrize('id', FAULTS)
def test_a_row_tells_a_bad_agent_from_a_good_one(kit, good_ones, id):
    good,bad = judged(kit, BAD, id, pool=good_ones),judged(kit, [*BAD, FAULTS[id]], id, 1)
    assert good[3]=='PASS', good
    assert bad[3]=='FAIL' and 'JSONDecodeError' not in bad[4], bad

@pytest.mark.parametrize('id', [r[0] for r in sorted(against.ROWS, key=lambda r: str(r[3]))]) # those that can share a process one after the other
def test_our_agent_holds_row(kit, pool, id):
    v = judged(kit, OURS, id, pool=pool)
    assert not against.failed(v) and v[3]!='UNTESTED', v
