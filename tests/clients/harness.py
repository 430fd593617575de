"""What every client test needs: a stock client (this machine's, or one in another root directory) and checks on it."""
import argparse, json, os, re, shutil, subprocess, sys, time

class Failed(Exception):
    pass

class Client:
    """Runs stock Ceph tools against the cluster of `conf`, natively or in the root directory `root`."""

    def __init__(self, conf, root=None):
        self.root = os.path.realpath(root) if root else None
        self.conf = os.path.realpath(conf)
        self.dir = os.path.dirname(self.conf)
        self.ran = 0
        self.work = (self.root or "") + "/tmp/cuttlebone-clients-%d" % os.getpid()
        os.makedirs(self.work, exist_ok=True)
        if self.root:
            self._bring_conf()

    def _bring_conf(self):
        """Copies ceph.conf and keyring into the other root; the network is shared, so addresses stay right."""
        inside = self.work[len(self.root):]
        keyring = os.path.join(self.dir, "keyring")
        shutil.copy(keyring, self.work + "/keyring")
        with open(self.conf) as f:
            text = re.sub(r"(?m)^\s*keyring\s*=.*$", "keyring = %s/keyring" % inside, f.read())
        text = re.sub(r"(?m)^\s*(log file|admin socket|run dir|pid file|crash dir)\s*=.*$", "", text)
        with open(self.work + "/ceph.conf", "w") as f:
            f.write(text)
        self.conf = inside + "/ceph.conf"

    def path(self, name):
        """A scratch file as the tools see it; `self.work + '/' + name` is the same file from here."""
        return (self.work[len(self.root):] if self.root else self.work) + "/" + name

    def argv(self, *args):
        argv = [str(a) for a in args]
        if argv[0] in ("ceph", "rados", "rbd", "crushtool", "osdmaptool", "monmaptool"):
            if argv[0] in ("ceph", "rados", "rbd"):
                argv[1:1] = ["-c", self.conf]
        return (["chroot", self.root] if self.root else []) + argv

    def run(self, *args, rc=0, input=None, timeout=120, env=None):
        """Runs a tool; returns (stdout, stderr). `rc` is the exit code that must come, None for any."""
        self.ran += 1
        if isinstance(input, str):
            input = input.encode()
        e = dict(os.environ, CEPH_ARGS="", PYTHONUNBUFFERED="1", **(env or {}))
        try:
            p = subprocess.run(self.argv(*args), input=input, capture_output=True, timeout=timeout, env=e)
        except subprocess.TimeoutExpired as t:
            raise Failed("%s: no answer in %d s\n%s" % (" ".join(map(str, args)), timeout, (t.stderr or b"").decode(errors="replace")))
        out, err = p.stdout.decode(errors="replace"), p.stderr.decode(errors="replace")
        if rc is not None and p.returncode != rc:
            raise Failed("%s: exit %d, expected %d\nstdout: %s\nstderr: %s" % (" ".join(map(str, args)), p.returncode, rc, out[-2000:], err[-2000:]))
        return out, err

    def ceph(self, *words, **kw):
        return self.run("ceph", *words, **kw)

    def rados(self, *words, **kw):
        return self.run("rados", *words, **kw)

    def json(self, *words, **kw):
        """A ceph command's JSON, parsed."""
        out, _ = self.ceph(*words, "-f", "json", **kw)
        try:
            return json.loads(out)
        except ValueError:
            raise Failed("ceph %s -f json: not JSON: %r" % (" ".join(map(str, words)), out[:500]))

    def version(self):
        return self.run("ceph", "--version")[0].strip()

    def close(self):
        shutil.rmtree(self.work, ignore_errors=True)

def arguments(doc, bin=True):
    """The options of every script that is given a running cluster; each adds its own."""
    ap = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("-c", dest="conf", required=True)
    if bin:
        ap.add_argument("--bin", required=True)
    return ap

def check(condition, what):
    if not condition:
        raise Failed(what)

def equal(got, wanted, what=""):
    if got != wanted:
        raise Failed("%s: got %r, wanted %r" % (what, got, wanted))

def match(pattern, text, what=""):
    if not re.search(pattern, text, re.M):
        raise Failed("%s: %r does not match %r" % (what, text[:1500], pattern))
    return text

def has_keys(obj, keys, what):
    missing = [k for k in keys.split() if k not in obj]
    if missing:
        raise Failed("%s: keys missing: %s (has %s)" % (what, " ".join(missing), " ".join(list(obj)[:40])))

def not_run(what, why):
    """What needs more than this user has is said where people run tests; in CI (the variable CI is set), which is to try everything, it
    is a failure."""
    print("%s: NOT RUN: it needs %s" % (what, why), flush=True)
    if os.environ.get("CI"):
        raise Failed("%s was not run, and CI is set" % what)

def until(probe, what, seconds=60):
    """Polls until `probe` returns something true."""
    end = time.monotonic() + seconds
    last = None
    while time.monotonic() < end:
        try:
            last = probe()
            if last:
                return last
        except Failed as e:
            last = e
        time.sleep(0.3)
    raise Failed("%s: not within %d s; last: %s" % (what, seconds, last))

TESTS = []

def test(f):
    """Marks a function as a test; tests run in the order they are written."""
    TESTS.append(f)
    return f

def run_all(client, only=None):
    """Runs every test; returns the number of failures. The last line is `N passed, N failed`."""
    passed = failed = 0
    for f in TESTS:
        if only and not any(o in f.__name__ for o in only):
            continue
        start = time.monotonic()
        try:
            f(client)
            passed += 1
            print("ok    %-40s %5.1f s" % (f.__name__, time.monotonic() - start), flush=True)
        except Failed as e:
            failed += 1
            print("FAIL  %-40s %s" % (f.__name__, e), flush=True)
        except Exception as e:
            failed += 1
            print("FAIL  %-40s %s: %s" % (f.__name__, type(e).__name__, e), flush=True)
    print("%d commands of %s" % (client.ran, client.version()))
    print("%d passed, %d failed" % (passed, failed), flush=True)
    return failed
