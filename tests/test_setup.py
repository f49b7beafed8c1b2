"`setup`, `doctor` and `logout` as a person and a script use them: a real command, a model server on this machine, a terminal."
import json, os, re, signal, stat, subprocess, sys, termios
from pathlib import Path
import pytest
from hypothesis import example, given, settings as hyp, strategies as st
from ramabana_acp import settings
from ramabana_acp.client import Client
from ramabana_acp.config import Config, parse_env
from ramabana_acp.core import Err
from ramabana_acp.doctor import LIBS
from ramabana_acp.models.specs import default_model, servable
from ramabana_acp.testing.models import FakeModel
from terminal import EXE, env, exe, home, sh, tty

SOON = 20 # seconds; what a command does by itself takes longer
KEY = 'zx-Th1sIsNoRealKeyAtAll-9876'
HI = [dict(text='hi')]

@pytest.fixture
def cfg(home): return home/'config/ramabana-acp'

def tree(d): return {p.relative_to(d).as_posix():p.read_bytes() for p in d.rglob('*') if p.is_file()}
def mode(p): return oct(stat.S_IMODE(p.stat().st_mode))
def where(m, api): return ('anthropic', m.base) if api=='messages' else ('mine', m.base+'/v1')
def by_script(sh, m, d, *args, api='chat', key=KEY, **kw):
    name,url = where(m, api)
    return sh('setup','--provider',name,'--base-url',url,'--model','fake-model','--key-stdin',*args, d=d, stdin=key, **kw)
def hides(*outs): return not any(KEY[i:i+5] in o for o in outs for i in range(len(KEY)-4))

def test_without_a_terminal_and_options_it_is_one_sentence(home):
    r = exe('setup', d=home)
    assert (r.returncode, r.stdout, len(r.stderr.strip().splitlines()))==(2, '', 1) and '--provider' in r.stderr and tree(home)=={}
    r = exe('setup', '--provider', 'openai', d=home)
    assert (r.returncode, len(r.stderr.strip().splitlines()))==(2, 1) and '--key-stdin' in r.stderr and tree(home)=={}

@pytest.mark.parametrize('api', ['chat','messages'])
def test_a_script_sets_up_and_a_session_opens(api, sh, home, cfg):
    with FakeModel([HI]) as m: r = by_script(dict(chat=exe, messages=sh)[api], m, home, api=api)
    assert r.returncode==0 and r.stderr=='' and hides(r.stdout), r.stdout+r.stderr
    req, = m.requests
    assert (req.dialect, req.body['max_tokens'], req.body['model'])==(api, 1, 'fake-model')
    assert KEY in (req.headers.get('authorization') or req.headers.get('x-api-key'))
    assert (mode(cfg), mode(cfg/'.env'), mode(cfg/'setup.json'))==('0o700', '0o600', '0o600')
    rec = json.loads((cfg/'setup.json').read_text())
    assert rec['env']==[dict(chat='MINE_API_KEY', messages='ANTHROPIC_API_KEY')[api]] and hides(json.dumps(rec), (cfg/'config.toml').read_text())
    with Client([EXE], cwd=home, env=env(home)) as c:
        assert c.initialize({})['authMethods']==[]
        assert c.new(home)

def test_what_a_person_wrote_is_kept_and_logout_gives_it_back(sh, home, cfg):
    cfg.mkdir(parents=True)
    mine = {'.env':b'\xef\xbb\xbf# my keys\r\nexport OTHER="a b" # two\r\n', 'config.toml':b'# settings\nkeys = "any" # loose\n\n# turns\n[agent]\nsteps = 5\n'}
    for n,b in mine.items(): (cfg/n).write_bytes(b); (cfg/n).chmod(0o644)
    with FakeModel() as m: r = by_script(sh, m, home, '--no-check')
    assert r.returncode==0 and not m.requests, r.stderr
    now = tree(cfg)
    assert now['.env']==mine['.env']+f'MINE_API_KEY={KEY}\r\n'.encode()
    assert all(l in now['config.toml'].splitlines() for l in mine['config.toml'].splitlines()) and b'model = "mine/fake-model"' in now['config.toml']
    assert (mode(cfg/'.env'), mode(cfg/'config.toml'))==('0o600', '0o644')
    r = sh('logout', d=home, ANTHROPIC_API_KEY=KEY)
    assert r.returncode==0 and 'MINE_API_KEY' in r.stdout and 'ANTHROPIC_API_KEY is still in the environment' in r.stdout and hides(r.stdout)
    assert tree(cfg)==mine
    r = sh('logout', d=home)
    assert r.returncode==0 and 'nothing' in r.stdout and tree(cfg)==mine

def test_twice_and_again_leaves_one_line_a_name(sh, home, cfg):
    with FakeModel() as m:
        for k in ('first-key-1234', KEY): assert by_script(sh, m, home, '--no-check', key=k).returncode==0
        assert by_script(sh, m, home, '--no-check', api='messages').returncode==0
    assert (cfg/'.env').read_text().splitlines()==[f'MINE_API_KEY={KEY}', f'ANTHROPIC_API_KEY={KEY}']
    assert (cfg/'config.toml').read_text().count('model = ')==1
    settings.logout(Config(cfg))
    assert tree(cfg)=={}

FAULTS = dict(key=([dict(http=401, body=dict(error=dict(message=f'Incorrect API key provided: {KEY[:5]}*****{KEY[-4:]}.')))], 'The key was rejected'),
    model=([dict(http=404, body=dict(error=dict(message='The model `fake-model` does not exist', code='model_not_found')))], 'The server does not know this model'),
    address=([dict(http=404, body='<html><title>Not here</title>')], 'No model server answers'), quota=([dict(http=402, body='pay')], 'cannot pay'), cut=([dict(text='a'), dict(sleep=.05), dict(cut=True)], 'check failed'))

@pytest.mark.parametrize('k', FAULTS)
def test_a_failed_check_says_what_is_wrong_and_writes_nothing(k, sh, home):
    evs,said = FAULTS[k]
    with FakeModel([evs]*3) as m: r = by_script(sh, m, home, api='messages' if k=='model' else 'chat')
    assert r.returncode==1 and said in r.stderr and len(r.stderr.splitlines())==1 and hides(r.stdout, r.stderr) and tree(home)=={}, r.stderr

def test_no_network_is_told(sh, home):
    r = sh('setup','--provider','mine','--base-url','http://127.0.0.1:9/v1','--model','m','--key-stdin', d=home, stdin=KEY)
    assert r.returncode==1 and 'The server cannot be reached' in r.stderr and tree(home)=={}

def test_a_key_on_the_command_line_is_refused_and_not_repeated(sh, home):
    for run,args in ((exe, ['--key', KEY]), (sh, ['--key', KEY]), (sh, [f'--api-key={KEY}']), (sh, [KEY]), (sh, ['--key-std', KEY])):
        r = run('setup', '--provider', 'openai', *args, d=home)
        assert r.returncode==2 and hides(r.stdout, r.stderr) and tree(home)=={}

def test_what_cannot_be_used_is_a_sentence(sh, home, cfg):
    for args,key,said in ((['--provider','mine'], KEY, '--base-url'), (['--provider','demo'], KEY, 'a provider is'), (['--provider','x','--base-url','h:1'], KEY, 'a base URL'),
            (['--provider','openai'], 'no key\nat all', 'that is no key'), (['--provider','openai'], '', 'needs a key')):
        r = sh('setup', *args, '--model', 'm', '--key-stdin', '--no-check', d=home, stdin=key)
        assert (r.returncode, len(r.stderr.splitlines()))==(2, 1) and said in r.stderr and tree(home)=={}, r.stderr
    cfg.mkdir(parents=True); (cfg/'config.toml').write_text('keys = file')
    r = sh('setup', '--provider', 'openai', '--key-stdin', '--no-check', d=home, stdin=KEY)
    assert r.returncode==1 and 'config.toml' in r.stderr and list(tree(cfg))==['config.toml']

def test_a_server_may_take_no_key(sh, home, cfg):
    r = sh('setup','--provider','box','--base-url','http://gpu-box:8000/v1','--model','m','--key-stdin','--no-check', d=home)
    assert r.returncode==0 and not (cfg/'.env').exists(), r.stderr
    c = Config(cfg)
    assert default_model(c).name=='box/m' and servable(default_model(c), c) is None

def echoes(t): return bool(termios.tcgetattr(t.fd)[3]&termios.ECHO)

def test_a_person_is_asked_and_a_rejected_key_and_model_are_asked_again(tty, home, cfg):
    with FakeModel([[dict(http=401, body='no such key')], [dict(http=404, body='model not found')], HI], models=('big','small')) as m:
        t = tty('setup')
        for wait,say in ((r'Number or name.*: ', '3'), ('Base URL: ', 'nonsense'), (r'a base URL is like.*\s+Base URL: ', m.base+'/v1'), (r'A short name for it \[local\]: ', 'mine'),
                (r'Key \(MINE_API_KEY.*\): ', 'wrong-key-1234'), (r'Models: big, small\s+Model \[big\]: ', ''), (r'The key was rejected.*\s+Key.*: ', KEY),
                (r'The server does not know this model.*\s+Models: big, small\s+Model \[big\]: ', 'small')):
            assert t.until(wait)==0, t.out
            if 'Key' in wait: assert not echoes(t)
            t.type(say+'\n')
        assert t.until('New sessions start with mine/small')==0, t.out
        t.until('no such thing')
        assert t.code()==0 and hides(t.out) and 'wrong-key' not in t.out, t.out
    assert parse_env((cfg/'.env').read_text())=={'MINE_API_KEY':KEY}
    assert [r.body['model'] for r in m.requests]==['big','big','small']

def test_a_key_that_is_there_is_kept_by_enter(tty, sh, home, cfg):
    cfg.mkdir(parents=True); (cfg/'.env').write_text(f'ANTHROPIC_API_KEY={KEY}\n')
    t = tty('setup', '--no-check')
    for wait,say in (('Number or name', '1'), (r'Enter keeps the one in \.env\): ', ''), (r'Model \[claude-[\w-]+\]: ', '')):
        assert t.until(wait)==0, t.out
        t.type(say+'\n')
    t.until('no such thing')
    assert t.code()==0 and json.loads((cfg/'setup.json').read_text())['env']==[] and hides(t.out), t.out
    assert sh('logout', d=home).returncode==0
    assert tree(cfg)=={'.env':f'ANTHROPIC_API_KEY={KEY}\n'.encode()}, 'a key that a person wrote is theirs'

def test_ctrl_c_at_the_key_leaves_everything_as_it_was(tty, home):
    t = tty('setup')
    t.until('Number or name'); t.type('1\n')
    t.until(r'Key \('); t.type('half-a-k\x03')
    t.until('Nothing was changed')
    assert echoes(t)
    t.until('no such thing')
    assert t.code()==130 and 'half' not in t.out and 'Traceback' not in t.out and tree(home)=={}, t.out

def test_ctrl_c_during_the_check_is_heard_at_once(tty, home):
    with FakeModel([[dict(silence=60)]]) as m:
        t = tty('setup', '--provider', 'mine', '--base-url', m.base+'/v1', '--model', 'm')
        t.until(r'Key \('); t.type(KEY+'\n')
        assert m.wait_requests(1, 60)
        t.type('\x03')
        assert t.until('no such thing', timeout=SOON) is None # the check itself gives up after 30 s
        assert t.code()==130 and 'Traceback' not in t.out and tree(home)=={}, t.out

def test_an_editor_appends_setup_to_its_own_command(home):
    d = home/'elsewhere'
    r = exe('--cfg', str(d), '--model', 'mine/m', '--no-web', 'setup', d=home)
    assert r.returncode==2 and 'no terminal' in r.stderr, r.stderr
    cfgd = dict(OPENAI_API_KEY=KEY)
    settings.save(Config(d), cfgd, {})
    code = "import sys; from ramabana_acp.setup import setup; sys.exit(setup(sys.argv[2:], sys.argv[1]))"
    run = lambda start: subprocess.run([sys.executable,'-c',code,start,'--cfg',str(d),'--provider','openai','--no-check'], capture_output=True, text=True, env=env(home), stdin=subprocess.DEVNULL, timeout=60)
    assert run('openai/gpt-5.4').returncode==0
    r = run('anthropic/claude-opus-5-5') # what this editor starts the agent with has no key still
    assert r.returncode==1 and 'anthropic/claude-opus-5-5 has no key' in r.stderr

@pytest.mark.parametrize('api', ['chat','messages'])
def test_doctor_finds_a_working_set_up(api, sh, home, cfg, request):
    if api=='messages': request.getfixturevalue('quick')
    with FakeModel([HI]) as m:
        assert by_script(sh, m, home, '--no-check', api=api).returncode==0
        r = dict(chat=exe, messages=sh)[api]('doctor', d=home)
    assert r.returncode==0 and r.stderr=='' and len(m.requests)==1, r.stdout+r.stderr
    name = 'mine' if api=='chat' else 'anthropic'
    for s in (f'{name.upper()}_API_KEY: in .env', f'{name}/fake-model at {where(m, api)[1]}', 'one token after', 'session/new', '`model` of config.toml', EXE, '"agent_servers"', 'agent-shell'): assert s in r.stdout, s
    assert hides(r.stdout)

@pytest.fixture
def quick(monkeypatch):
    "The doctor tries one small library, since loading the three is most of its time; a test of a working set-up has it try all"
    for k in list(LIBS): monkeypatch.delitem(LIBS, k)
    monkeypatch.setitem(LIBS, 'fastcore', 'fastcore')

def test_doctor_names_what_is_broken(quick, sh, home, cfg):
    r = sh('doctor', d=home)
    assert r.returncode==1 and re.search(r'✗ model .*ramabana-acp setup', r.stdout) and 'on the demo model' in r.stdout and 'agent_servers' not in r.stdout
    with FakeModel([FAULTS['key'][0]]*2) as m:
        assert by_script(sh, m, home, '--no-check').returncode==0
        r = sh('doctor', '--json', d=home)
        o = json.loads(r.stdout)
        assert r.returncode==1 and not o['ok'] and [c['what'] for c in o['checks'] if c['state']=='bad']==['answer'] and 'The key was rejected' in r.stdout
        assert hides(r.stdout, r.stderr) and str(home) not in r.stdout
        n = len(m.requests)
        assert sh('doctor', '--offline', '--json', d=home).returncode==0 and len(m.requests)==n
    (cfg/'config.toml').write_text('keys = file')
    r = sh('doctor', d=home)
    assert r.returncode==1 and re.search(r'✗ settings .*config.toml', r.stdout)

def test_doctor_leaves_no_session_behind(quick, sh, home):
    assert sh('doctor', '--model', 'demo', d=home).returncode==0
    assert not [p for p in home.rglob('*.jsonl')]+[p for p in home.rglob('meta.json')]

# the files

TOML = ['', 'model = "a"', "model = 'a' # mine\n", '[agent]\nmodel = "no"\n', 'keys = "any"\r\n[agent]\r\nsteps = 1\r\n', 'x = """\nmodel = "in a string"\n[y]\n"""\n[z]\nw=1',
    '# head\n\n# about a\n[a]\nb = [\n  [1, 2],\n]\n', 'providers.p.id = "dotted"\n', '[providers.p] # mine\nid = "m"\nbase_url = "old" # was\n[providers.q]\nbase_url = "other"\n', '["providers".p]\n']

@pytest.mark.parametrize('text', TOML)
def test_settings_are_put_in_and_taken_out_of_any_file(text):
    import tomllib
    was = tomllib.loads(text)
    new = settings.put_toml(settings.put_toml(text, ('model',), 'p/"m"\\'), ('providers','p','base_url'), 'http://h/v1')
    got = tomllib.loads(new)
    assert got['model']=='p/"m"\\' and got['providers']['p'].pop('base_url')=='http://h/v1'
    assert re.findall('# .*', new)==re.findall('# .*', text)
    back = tomllib.loads(settings.drop_toml(settings.drop_toml(new, ('model',)), ('providers','p','base_url')))
    was.pop('model', None); was.get('providers', {}).get('p', {}).pop('base_url', None)
    empty = lambda o: {k:v for k,v in ((k, empty(v) if isinstance(v, dict) else v) for k,v in o.items()) if v!={}}
    assert empty(back)==empty(was)

line = st.one_of(st.sampled_from(['# note', '', 'A=1', 'export B="x y" # z', "C='q", 'no line', 'K=old', 'export K="older" # k', ' K = oldest']), st.text(max_size=12))

@hyp(max_examples=200, deadline=None)
@example(['A=1\r'], '\n', '0') # a lone carriage return ends no line
@given(st.lists(line, max_size=6), st.sampled_from(['\n','\r\n']), st.text('abcXYZ019-_=+/.$%#', min_size=1, max_size=20))
def test_one_line_of_env_changes_and_no_other(ls, end, value):
    text = end.join(ls)
    try: new = settings.put_env(text, 'K', value)
    except Err: assert any('"' in l or "'" in l for l in ls); return
    others = lambda s: [l.rstrip('\r') for l in s.split('\n') if l.strip('\r') and 'K' not in parse_env(l)]
    assert parse_env(new)['K']==value and others(new)==others(text)
    assert parse_env(settings.drop_env(new, 'K'))=={k:v for k,v in parse_env(text).items() if k!='K'}

@pytest.mark.parametrize('trouble', ['signal','full'])
def test_a_signal_or_a_full_disk_between_two_files_puts_everything_back(trouble, tmp_path, monkeypatch):
    d = tmp_path/'home'; d.mkdir()
    (d/'.env').write_text('A=1\n'); (d/'.env').chmod(0o640); (d/'config.toml').write_text('x = 1\n')
    was,real,n = tree(d),settings.write_atomic,[]
    def write(p, *args):
        n.append(p)
        if len(n)==2:
            if trouble=='full': raise OSError(28, 'No space left on device')
            signal.raise_signal(signal.SIGINT)
        real(p, *args)
    monkeypatch.setattr(settings, 'write_atomic', write)
    with pytest.raises(KeyboardInterrupt if trouble=='signal' else OSError): settings.save(Config(d), dict(K=KEY), {('model',):'m'})
    assert tree(d)==was and mode(d/'.env')=='0o640'

def test_a_home_that_was_made_goes_again_when_writing_fails(tmp_path, monkeypatch):
    def full(*args): raise OSError(28, 'No space left on device')
    monkeypatch.setattr(settings, 'write_atomic', full)
    with pytest.raises(OSError): settings.save(Config(tmp_path/'a/home'), dict(K=KEY), {})
    assert not (tmp_path/'a/home').exists()

def test_a_link_to_dotfiles_stays_a_link(tmp_path):
    d = tmp_path/'home'; d.mkdir(); (tmp_path/'dot').write_text('A=1\n'); (d/'.env').symlink_to(tmp_path/'dot')
    settings.save(Config(d), dict(K=KEY), {})
    assert (d/'.env').is_symlink() and (tmp_path/'dot').read_text()==f'A=1\nK={KEY}\n'
    assert settings.logout(d)==['K'] and (tmp_path/'dot').read_text()=='A=1\n'

def test_a_broken_record_is_named_and_nothing_is_removed(tmp_path):
    (tmp_path/'setup.json').write_text('[]'); (tmp_path/'.env').write_text('K=1\n')
    with pytest.raises(Err, match='setup.json'): settings.logout(tmp_path)
    assert (tmp_path/'.env').read_text()=='K=1\n'
