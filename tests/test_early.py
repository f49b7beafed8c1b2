"""The first answers do not wait for the ACP library, and are the same bytes as with it."""
import json, re, subprocess, sys, time
import pytest

INIT = dict(id=0, method='initialize', params=dict(protocolVersion=1, clientCapabilities=dict(fs=dict(readTextFile=True)), clientInfo=dict(name='t', version='1')))
def wire(msgs): return ''.join((m if isinstance(m, str) else json.dumps(dict(jsonrpc='2.0', **m)))+'\n' for m in msgs).encode()
def start(preload):
    code = ('import acp; ' if preload else '')+"from ramabana_acp.entry import run; run(['--model','demo'])"
    return subprocess.Popen([sys.executable, '-c', code], stdin=-1, stdout=-1, stderr=-1)

def talk(msgs, preload=False):
    "All that the process writes to `msgs`, session ids made alike"
    p,out,todo = start(preload),b'',sum(isinstance(m, str) or 'id' in m for m in msgs)
    p.stdin.write(wire(msgs)); p.stdin.flush()
    while todo:
        out += (l := p.stdout.readline())
        assert l, p.stderr.read().decode()
        todo -= 'method' not in json.loads(l)
    rest,err = p.communicate(timeout=60)
    assert p.returncode==0, err.decode()
    out = re.sub(rb'sess_[0-9a-f]+', b'sess_x', out)
    return sorted(l for l in out.splitlines() if b'session/update' not in l)

def test_the_same_transcript_gives_equal_bytes_with_and_without_the_library(tmp_path):
    new = lambda i,**kw: dict(id=i, method='session/new', params=dict(cwd=str(tmp_path), mcpServers=[], **kw))
    msgs = [INIT, new('a'), new(2), dict(id=3, method='session/new', params=dict(cwd='relative', mcpServers=[])), dict(id=4, method='authenticate', params=dict(methodId='ghost')),
        new(5, additionalDirectories=[str(tmp_path)]), dict(id=6, method='session/new', params=dict(cwd=5)), dict(id=7, method='no/such'), '[]', 'no json',
        dict(id=8, method='session/prompt', params=dict(sessionId='ghost', prompt=[])), dict(id=9, method='session/close', params=dict(sessionId='ghost')),
        new(10, _meta=dict(cwd='/etc')), dict(id=11, method='session/new', params=dict(cwd=str(tmp_path), mcpServers=[5]))]
    got,want = talk(msgs),talk(msgs, preload=True)
    assert got==want
    assert len(got)>=14

def test_no_library_is_loaded_before_initialize_is_answered():
    code = '''import sys, os
from ramabana_acp.editor import boot
real = os.write
heavy = ('acp','pydantic','anthropic','openai','httpx2','fastcore')
def write(fd, b):
    if b'"protocolVersion"' in bytes(b): sys.stderr.write('HEAVY '+repr(sorted(m for m in heavy if m in sys.modules))+'\\n')
    return real(fd, b)
class Late:
    "Anything heavy is found only after the answer has left"
    def find_spec(self, name, path=None, target=None):
        if name in heavy: answered.wait(60)
import threading
answered = threading.Event()
import ramabana_acp.editor.wire as w
def _write(fd, b):
    n = write(fd, b)
    answered.set()
w._write = _write
sys.meta_path.insert(0, Late())
boot.boot(model='demo')'''
    p = subprocess.run([sys.executable, '-c', code], input=wire([INIT]), capture_output=True, timeout=60)
    assert b'HEAVY []' in p.stderr, p.stderr.decode()
    assert json.loads(p.stdout.splitlines()[0])['result']['protocolVersion']==1

def test_a_turn_is_served_before_the_library_has_loaded(tmp_path):
    (tmp_path/'slow/acp').mkdir(parents=True)
    (tmp_path/'slow/acp/__init__.py').write_text("import sys, time\nsys.stderr.write('LOADING'); sys.stderr.flush(); time.sleep(60)")
    code = f"import sys; sys.path.insert(0, {str(tmp_path/'slow')!r})\nfrom ramabana_acp.entry import run\nrun(['--model','demo'])"
    p = subprocess.Popen([sys.executable, '-c', code], stdin=-1, stdout=-1, stderr=-1)
    def say(**m): p.stdin.write(wire([m])); p.stdin.flush()
    def hear(id):
        while (m := json.loads(p.stdout.readline())).get('id')!=id: pass
        return {k:v for k,v in m['result'].items() if k!='_meta'}
    try:
        say(**INIT)
        say(id=1, method='session/new', params=dict(cwd=str(tmp_path), mcpServers=[]))
        sid = hear(1)['sessionId']
        say(id=2, method='session/prompt', params=dict(sessionId=sid, prompt=[dict(type='text', text='/help')]))
        assert hear(2)==dict(stopReason='end_turn')
        assert b'LOADING' in p.stderr.read(7), 'it loads once nothing is asked'
        say(id=3, method='session/new', params=dict(cwd=str(tmp_path), mcpServers=[]))
        assert hear(3)['sessionId']!=sid, 'and nobody waits for it'
        say(id=4, method='session/prompt', params=dict(sessionId=sid, prompt=[dict(type='text', text='hello')]))
        assert hear(4)==dict(stopReason='end_turn')
    finally: p.kill(); p.wait()
