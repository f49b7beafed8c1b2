"Commands end when they should, and nothing they started is left."
import os, re, resource, signal, stat, subprocess, sys, threading, time
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
import pytest
from width import few_or_many
from ramabana_acp.core import Cancelled, Token, ToolError, secret
from ramabana_acp.workspace import output,process
from ramabana_acp.workspace.output import clean
from ramabana_acp.workspace.process import child_env, kill_all, run

linux = sys.platform=='linux'
SOON = 10 # seconds in which what takes milliseconds has happened, on a slow machine too; the benchmark holds the figures themselves

def alive(tag):
    "Live processes whose command line holds `tag`"
    out = subprocess.run(['ps','-A','-o','pid=,stat=,args='], capture_output=True, text=True).stdout
    return [l for l in out.splitlines() if tag in l and l.split()[1][0]!='Z']

def gone(tag):
    "Nothing that holds `tag` runs; what has been killed may take a moment to be gone"
    wait_for(lambda: not alive(tag), SOON)
    return True

def fds(): return len(os.listdir('/proc/self/fd' if linux else '/dev/fd'))

def wait_for(f, secs=20):
    end = time.monotonic()+secs
    while not f():
        assert time.monotonic()<end, 'nothing happened'
        time.sleep(.005)

def cancelled(cmd, tmp_path, ready):
    "Run `cmd` until `ready()`, cancel, and return the seconds until `run` gave up"
    tok,res = Token(),[]
    def go():
        try: res.append(run(cmd, tmp_path, tok=tok))
        except Cancelled: res.append(time.monotonic())
    t = threading.Thread(target=go)
    t.start()
    wait_for(ready)
    t0 = time.monotonic()
    tok.cancel(); t.join(60)
    assert isinstance(res[0], float), res
    return res[0]-t0

N = iter(range(10_000, 10**6))
def tag(): return f'{next(N)}.{os.getpid()}'

def test_a_cancelled_command_is_gone_with_its_grandchildren(tmp_path):
    for _ in range(3):
        k = tag()
        assert cancelled(f'sh -c "sleep {k} & wait" & sleep {k} & wait', tmp_path, lambda k=k: len(alive(f'sleep {k}'))>=3)<SOON
        assert gone(f'sleep {k}')

@pytest.mark.parametrize('cmd', ["trap '' TERM; sleep {k} & sleep {k}", "(trap '' TERM; sleep {k}) & sleep {k}",
    "trap '' TERM INT HUP; while :; do sleep {k}; done"])
def test_what_ignores_TERM_is_gone_within_a_second(tmp_path, cmd):
    k = tag()
    assert cancelled(cmd.format(k=k), tmp_path, lambda: alive(f'sleep {k}'))<SOON
    assert gone(k)

@pytest.mark.skipif(not linux, reason='sessions are told by /proc')
@pytest.mark.parametrize('cmd', ['setsid sleep {k} & wait', 'setsid sh -c "setsid sleep {k} & sleep {k}" & wait',
    '(setsid sleep {k} &) ; sleep 30', 'env -i setsid sleep {k} & wait',
    "trap '' TERM; setsid sleep {k} & wait", 'set -m; sleep {k} & wait'])
def test_what_took_a_session_of_its_own_is_gone_too(tmp_path, cmd):
    k = tag()
    assert cancelled(cmd.format(k=k), tmp_path, lambda: any(f'sleep {k}'==l.split(None, 2)[2] for l in alive(k)))<SOON
    assert gone(f'sleep {k}')

def test_C034_a_killed_tree_writes_nothing_more(tmp_path):
    k = tag()
    cancelled(f"(sleep {k}; echo late > late) & (trap '' TERM; touch up; sleep {k}; echo late2 > late2) & wait", tmp_path, (tmp_path/'up').exists)
    assert gone(k) and os.listdir(tmp_path)==['up'], 'there is nobody left who could write'

@few_or_many(2, 12)
def test_a_script_whose_child_is_killed_does_not_go_on(tmp_path, n):
    for i in range(n):
        k = tag()
        cancelled(f"trap '' TERM; touch up{i}; sleep {k}; touch on{i}", tmp_path, (tmp_path/f'up{i}').exists)
        assert gone(k)
    assert not [f for f in os.listdir(tmp_path) if f.startswith('on')]

def test_a_cancel_before_the_start_starts_nothing(tmp_path):
    tok = Token()
    tok.cancel()
    with pytest.raises(Cancelled): run('touch x', tmp_path, tok=tok)
    assert os.listdir(tmp_path)==[]

def test_a_cancel_at_any_moment_is_a_cancel_or_comes_too_late(tmp_path):
    n,m = fds(),threading.active_count()
    for i in range(60):
        tok = Token()
        threading.Timer(i/6000, tok.cancel).start()
        try: assert run('echo a', tmp_path, tok=tok).text=='a\n'
        except Cancelled: pass
    wait_for(lambda: threading.active_count()<=m and fds()<=n)
    assert not process._live

def test_C103_a_background_child_does_not_hang_the_call(tmp_path):
    k,t0 = tag(),time.monotonic()
    r = run(f'sleep {k} & echo started', tmp_path)
    assert time.monotonic()-t0<60 and (r.code,r.text,r.left)==(0,'started\n',1) and 'background' in r.report() and gone(k)

def test_C104_a_background_child_that_prints_does_not_hang_the_call(tmp_path):
    k,got = tag(),[]
    r = run(f'(while :; do echo tick {k}; sleep 0.05; done) & until [ -e up ]; do sleep .05; touch up; done; echo fg-done', tmp_path, on_output=got.append)
    assert 'fg-done' in r.text and r.code==0
    n = len(got)
    assert gone(k) and len(got)==n

def test_a_background_child_without_the_pipe_is_killed_too(tmp_path):
    k = tag()
    r = run(f'sleep {k} >/dev/null 2>&1 & echo on', tmp_path)
    assert (r.text,r.left)==('on\n',1) and gone(k)

def test_a_child_that_ends_by_itself_in_time_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(process, 'GRACE', 30)
    r = run('(sleep .02; echo tail; touch done) & echo head', tmp_path)
    assert (r.text,r.left,os.listdir(tmp_path))==('head\ntail\n',0,['done'])

@pytest.mark.skipif(not linux, reason='needs setsid')
def test_a_daemon_on_purpose_survives_a_command_that_ended(tmp_path):
    k = tag()
    r = run(f'setsid sh -c "touch up; exec sleep {k}" >/dev/null 2>&1 & until [ -e up ]; do sleep .01; done; echo on', tmp_path)
    assert (r.text,r.left)==('on\n',0) and len(alive(f'sleep {k}'))==1
    os.kill(int(alive(f'sleep {k}')[0].split()[0]), signal.SIGKILL)

def test_C106_there_is_no_keyboard(tmp_path):
    r = run("read a; echo rc=$?; python3 -c 'open(\"/dev/tty\")'; cat | wc -c; echo $GIT_TERMINAL_PROMPT", tmp_path)
    assert 'rc=1' in r.text and 'OSError' in r.text and r.text.split()[-2:]==['0','0']

def test_C107_no_pager_and_no_editor(tmp_path, monkeypatch):
    monkeypatch.setenv('PAGER', 'less'); monkeypatch.setenv('EDITOR', 'vi')
    see = "env | grep -E '^(PAGER|GIT_PAGER|GIT_EDITOR|EDITOR|TERM)=' | sort"
    r = run(see+"; git init -q . && git -c user.name=a -c user.email=a@b commit --allow-empty 2>&1; git log | cat",
        tmp_path, timeout=60)
    assert r.text.startswith('EDITOR=true\nGIT_EDITOR=true\nGIT_PAGER=cat\nPAGER=cat\nTERM=dumb\n') and 'empty commit message' in r.text

def test_C109_bad_bytes_are_shown_and_the_code_is_kept(tmp_path):
    r = run(r"printf 'ok\xff\xfe\xc3 end\n'; exit 3", tmp_path)
    assert (r.code,r.text)==(3,'ok\ufffd\ufffd\ufffd end\n') and 'exit code 3' in r.report()

@few_or_many(64_000_000, 300_000_000)
def test_C110_output_without_end_is_bounded_and_keeps_the_error(tmp_path, n):
    m = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    r = run(f"head -c {n} /dev/zero | tr '\\0' 'a' | fold -w 80; echo FINAL-ERROR >&2; exit 2", tmp_path)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss-m)*(1 if linux else 1/1024)<40_000
    assert r.code==2 and r.truncated and len(r.text)<=30_000 and r.text.startswith('a'*80+'\n') and r.text.endswith('FINAL-ERROR\n')
    size = n+n//80+len('FINAL-ERROR')
    assert 0<size-int(re.search(r'([\d,]+) bytes cut; the whole output is in /', r.text)[1].replace(',', ''))<=30_000
    assert os.path.getsize(r.spill)==size
    mode = lambda p: stat.S_IMODE(os.stat(p).st_mode)
    assert (mode(r.spill),mode(os.path.dirname(r.spill)),output.spilled(r.spill))==(0o600,0o700,True)

def test_a_spill_file_is_bounded_and_the_oldest_go(tmp_path, monkeypatch):
    monkeypatch.setattr(output, 'SPILL_MAX', 1_000_000); monkeypatch.setattr(output, 'SPILLS_MAX', 2_500_000)
    rs = [run('head -c 5000000 /dev/zero', tmp_path) for _ in range(4)]
    assert all('the beginning is in' in r.text and r.text[-1]=='␀' for r in rs)
    assert [os.path.exists(r.spill) for r in rs]==[False,False,True,True] and os.path.getsize(rs[-1].spill)<=1_000_000

def test_a_full_disk_costs_the_file_and_nothing_else(tmp_path, monkeypatch):
    def full(self, b): raise OSError(28, 'No space left on device')
    real = output.spill_file
    class Full:
        def __init__(self, f): self.f = f
        write = full
        def close(self): self.f.close()
    monkeypatch.setattr(output, 'spill_file', lambda *a: (lambda p,f: (p,Full(f)))(*real(*a)))
    r = run('yes | head -c 3000000; echo end', tmp_path)
    assert r.code==0 and r.text.endswith('end\n') and 'No space left' in r.text

def test_the_files_go_with_the_process(tmp_path):
    code = "import os\nfrom ramabana_acp.workspace.process import run\n"
    code += "r = run('yes | head -c 100000', limit=1000)\nassert os.path.exists(r.spill)\nprint(r.spill)"
    p = subprocess.run([sys.executable,'-c',code], capture_output=True, text=True, check=True).stdout.strip()
    assert p and not os.path.exists(os.path.dirname(p))

def test_short_output_leaves_no_file(tmp_path):
    assert run('seq 100', tmp_path).spill is None

def test_C112_a_cut_never_splits_a_character(tmp_path):
    for n in (60_000, 400_000):
        r = run(f"python3 -c \"print('é'*{n})\"", tmp_path)
        assert '\ufffd' not in r.text and r.truncated and 29_000<len(r.text)<=30_000
        r = run(f"python3 -c \"print('x'+'😀'*{n})\"", tmp_path)
        assert '\ufffd' not in r.text and len(r.text)<=30_000

def test_C113_codes_and_frames_do_not_reach_the_model(tmp_path):
    r = run("printf '\\033[31mred\\033[0m \\033]0;title\\007x\\n'; for i in 1 2 3; do printf '%s%%\\r' $i; done; printf 'done\\n'",
        tmp_path)
    assert r.text=='red x\n3%\ndone\n'
    r = run("for i in $(seq 30000); do printf '\\033[38;5;12m%s\\033[0m' abcdefghij; done", tmp_path)
    assert r.truncated and '\x1b' not in r.text and '[38;5' not in r.text.replace('abcdefghij', '')[400:]

def test_clean_leaves_no_control_character_whatever_comes():
    import random
    rnd = random.Random(3)
    for _ in range(3000):
        s = ''.join(rnd.choices('ab\x1b[]P0;1m\x07\\\r\n\t\x08\x00\x9b\x9d\x85 m?', k=rnd.randint(0, 30)))
        assert not re.search('[\x00-\x08\x0b-\x1f\x7f-\x9f]', clean(s)), repr(s)
    t0 = time.process_time()
    for s in ('\x1b['*200_000, '\x1b]'*200_000, 'a\x08'*200_000, '\x08'*200_000+'a', 'x\r'*200_000, 'a%d\r'*200_000,
        '\x1bP'+'x'*400_000): clean(s)
    assert time.process_time()-t0<20, 'a minute and more if a step looked at all of the text'

def test_live_output_is_whole_characters_without_codes(tmp_path):
    got = []
    (tmp_path/'slow.py').write_text(r"""import sys,time
for b in 'é\x1b[31m€\x1b]0;t\x07😀\x1b[0m!'.encode():
    sys.stdout.buffer.write(bytes([b])); sys.stdout.flush(); time.sleep(.002)""")
    run('python3 -u slow.py', tmp_path, on_output=got.append)
    assert ''.join(got)=='é€😀!' and len(got)>1

def test_a_watcher_that_fails_does_not_end_the_command(tmp_path, capsys):
    assert run('echo a; sleep .1; echo b', tmp_path, on_output=lambda s: 1/0).text=='a\nb\n'

def test_C115_it_runs_in_its_folder_and_nowhere_else(tmp_path):
    (tmp_path/'rel.txt').touch(); (tmp_path/'other').mkdir()
    cwd,got = os.getcwd(),{}
    ts = [threading.Thread(target=lambda d=d: got.update({d:run('sleep .05; pwd; ls', d).text})) for d in (str(tmp_path),
        str(tmp_path/'other'))]
    for t in ts: t.start()
    for t in ts: t.join()
    assert got=={str(tmp_path):f'{tmp_path}\nother\nrel.txt\n', str(tmp_path/'other'):f'{tmp_path}/other\n'} and os.getcwd()==cwd

def test_a_linked_folder_keeps_its_name(tmp_path):
    (tmp_path/'real').mkdir(); (tmp_path/'ln').symlink_to('real')
    assert run('pwd', tmp_path/'ln').text==f'{tmp_path}/ln\n'

def test_C116_a_command_longer_than_the_kernel_takes(tmp_path):
    r = run("cat > out.txt <<'E'\n"+'x'*300_000+"\nE\necho \"$1\" é", tmp_path)
    assert r.code==0 and r.text==' é\n' and (tmp_path/'out.txt').stat().st_size==300_001
    assert not [f for f in os.listdir(output._spill_dir()) if f.startswith('cmd_')]

@pytest.mark.parametrize('cmd,text', [('-n', None), ('--help', None), ('# nothing', ''), ('echo "a\ud800b"', 'a\ufffdb\n'),
    ('echo $0', None), ('', '')])
def test_odd_commands(tmp_path, cmd, text):
    r = run(cmd, tmp_path)
    assert text is None or r.text==text

def test_what_cannot_start_is_told(tmp_path):
    (tmp_path/'f').touch()
    for cmd,d in (('true', tmp_path/'none'), ('true', tmp_path/'f'), ('echo a\0b', tmp_path)):
        n = fds()
        with pytest.raises(ToolError): run(cmd, d)
        assert fds()==n and not process._live

def test_death_by_signal_is_told_and_is_no_success(tmp_path):
    for s in ('SEGV','KILL','ABRT'):
        r = run(f'kill -{s} $$', tmp_path)
        assert r.code==128+getattr(signal, 'SIG'+s) and r.signal=='SIG'+s and f'ended by SIG{s}' in r.report()
    r = run('sh -c "kill -SEGV \\$\\$"; exit $?', tmp_path)
    assert (r.code,r.signal)==(139,'SIGSEGV')
    r = run('exit 255', tmp_path)
    assert (r.code,r.signal)==(255,None)

def test_a_time_out_keeps_what_was_printed(tmp_path):
    for secs in (.2, 1, 5, 20): # a machine may be so slow that nothing was printed yet
        k = tag()
        r = run(f'echo before; sleep {k} & sleep {k}', tmp_path, timeout=secs)
        assert (r.code,r.timed_out)==(124,True) and f'timed out after {secs:g} s' in r.report() and gone(k)
        if r.text: break
    assert r.text=='before\n'

def test_a_command_that_closes_its_output_is_waited_for(tmp_path):
    t0 = time.monotonic()
    r = run('echo a; exec >&- 2>&-; sleep .3; touch x', tmp_path)
    assert (r.code,r.text,os.listdir(tmp_path))==(0,'a\n',['x']) and time.monotonic()-t0>=.3

def test_C181_secrets_stay_here(tmp_path, monkeypatch):
    k = secret('sk-ant-SECRET123-of-test\n')
    monkeypatch.setenv('ANTHROPIC_API_KEY', k); monkeypatch.setenv('GH_TOKEN', 'x'); monkeypatch.setenv('SOME_URL',
        'https://'+k); monkeypatch.setenv('DB_PASSWORD', 'y')
    monkeypatch.setenv('TOKENIZERS_PARALLELISM', 'no'); monkeypatch.setenv('SSH_AUTH_SOCK', '/s'); monkeypatch.setenv('MONKEY', '1')
    r = run('env', tmp_path)
    assert 'SECRET123' not in r.text and not {'GH_TOKEN','DB_PASSWORD','SOME_URL','ANTHROPIC_API_KEY'} & child_env().keys()
    assert {'TOKENIZERS_PARALLELISM','SSH_AUTH_SOCK','MONKEY','PATH','HOME'} <= child_env().keys() | {'HOME'}
    (tmp_path/'f').write_text(f'key {k}')
    assert run('cat f', tmp_path).text=='key [redacted]'

def test_children_get_no_file_of_ours(tmp_path):
    with open(tmp_path/'f', 'w') as f:
        os.set_inheritable(f.fileno(), True)
        assert run('ls /proc/self/fd 2>/dev/null || ls /dev/fd', tmp_path).text.split()[:3]==['0','1','2']
        assert f'{f.fileno()}' not in run('for f in /proc/$$/fd/*; do readlink $f; done',
            tmp_path).text.split() and str(tmp_path/'f') not in run('ls -l /proc/$$/fd', tmp_path).text

def test_kill_all_ends_everything_at_once(tmp_path):
    k,res = tag(),[]
    ts = [threading.Thread(target=lambda i=i: res.append(run(f"trap '' TERM; sleep {k} & sleep {k}" if i%2 else f'sleep {k}',
        tmp_path))) for i in range(6)]
    for t in ts: t.start()
    wait_for(lambda: len(alive(f'sleep {k}'))>=9)
    kill_all()
    assert gone(k)
    for t in ts: t.join(60)
    assert len(res)==6 and 'SIGKILL' in {r.signal for r in res}<={'SIGTERM','SIGKILL'}

def test_many_at_once_leave_no_thread_file_or_process(tmp_path):
    n,res = fds(),[]
    for _ in range(3):
        ts = [threading.Thread(target=lambda i=i: res.append(run(f'seq {i}000 | tail -1', tmp_path).text)) for i in range(1, 13)]
        for t in ts: t.start()
        for t in ts: t.join()
    assert sorted(res)==sorted([f'{i}000\n' for i in range(1, 13)]*3) and fds()<=n and not process._live

def test_it_works_without_proc(tmp_path, monkeypatch):
    monkeypatch.setattr(process, '_procs', process._ps); monkeypatch.setattr(process, '_procs_start', lambda pid: 0)
    k = tag()
    assert cancelled(f"trap '' TERM; sh -c 'sleep {k} & wait' & sleep {k} & wait", tmp_path, lambda: len(alive(f'sleep {k}'))>=3)<SOON
    assert gone(k) and run(f'sleep {k} & echo on', tmp_path).left==1 and gone(k)

def test_a_repository_cannot_have_its_programs_run_by_a_look(tmp_path):
    run('git init -q .; git config core.fsmonitor "touch $PWD/P; false"', tmp_path)
    run('git init -q --bare x; git -C x config core.fsmonitor "touch $PWD/P"', tmp_path)
    run('git -C x config core.bare false; git -C x config core.worktree ..', tmp_path)
    run('git status', tmp_path); run('git status', tmp_path/'x'); run('git diff --stat', tmp_path)
    assert not (tmp_path/'P').exists()
    run('git status # loudly', tmp_path)
    assert (tmp_path/'P').exists(), 'the trap works at all'

def test_a_command_that_can_be_found_can_be_ended(tmp_path, monkeypatch):
    seen,real = [],process._procs_start
    monkeypatch.setattr(process, '_procs_start', lambda pid: seen.append([hasattr(r, 'start') for r in process._live]) or real(pid))
    assert run('echo hi', tmp_path).text=='hi\n' and all(map(all, seen)) and seen
