package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// serveProgram starts the program's server and returns its address.
func serveProgram(t *testing.T, args ...string) (c *exec.Cmd, url string, log *bytes.Buffer) {
	t.Helper()
	return startServer(t, serverCommand(os.Args[0], append([]string{"serve", "--listen", "127.0.0.1:0", "--memory", "512MiB"}, args...)...))
}

// serverCommand is a command in which the test's program is the server's, with its garbage collected as at its users',
// whatever the tests run with.
func serverCommand(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), asProgram+"=1", "GOGC=", "GODEBUG=")
	return c
}

// startServer starts a server and returns its address, and its log up to where it serves.
func startServer(t *testing.T, c *exec.Cmd) (_ *exec.Cmd, url string, log *bytes.Buffer) {
	t.Helper()
	errors, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	log = new(bytes.Buffer)
	lines := bufio.NewScanner(io.TeeReader(errors, log))
	for lines.Scan() {
		if m := regexp.MustCompile(`msg"?[=:]"?serving"?[ ,]"?address"?[=:]"?([^\s"]+)`).FindStringSubmatch(lines.Text()); m != nil {
			go io.Copy(io.Discard, errors)
			return c, "http://" + m[1], log
		}
	}
	t.Fatalf("the server did not start: %s", log)
	return nil, "", nil
}

// longAnswer begins an answer that takes some seconds, and waits for its first part.
func longAnswer(t *testing.T, url string, tokens int) *bufio.Scanner {
	t.Helper()
	r, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(`{"prompt":"never karl","stream":true,"ignore_eos":true,"max_tokens":%d}`, tokens)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Body.Close() })
	lines := bufio.NewScanner(r.Body)
	if !lines.Scan() {
		t.Fatal("no answer")
	}
	return lines
}

// TestServeEnds: SIGTERM lets an answer go on and refuses others; without time for it, it is told; the program ends well.
func TestServeEnds(t *testing.T) {
	for name, c := range map[string]struct {
		drain  string
		tokens int
		whole  bool
	}{"waiting": {"10m", 1000, true}, "at once": {"50ms", 3000, false}} {
		t.Run(name, func(t *testing.T) {
			p, url, _ := serveProgram(t, "--drain", c.drain)
			lines := longAnswer(t, url, c.tokens)
			if err := p.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			last, text := "", ""
			for lines.Scan() {
				if lines.Text() != "" {
					last, text = lines.Text(), last
				}
			}
			if last != "data: [DONE]" {
				t.Errorf("the answer ends with %q", last)
			}
			if told := strings.Contains(text, "shutting down"); told == c.whole {
				t.Errorf("before its end: %q", text)
			}
			done := make(chan error, 1)
			go func() { done <- p.Wait() }()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(4 * time.Second):
				t.Error("the program goes on")
			}
		})
	}
}

// TestServeEndsTwice: a second signal ends the program within 4 seconds, whatever goes on.
func TestServeEndsTwice(t *testing.T) {
	p, url, _ := serveProgram(t)
	longAnswer(t, url, 3900)
	p.Process.Signal(syscall.SIGTERM)
	time.Sleep(500 * time.Millisecond)
	start := time.Now()
	p.Process.Signal(syscall.SIGTERM)
	p.Wait()
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestServeTLS: with a certificate the server speaks TLS of version 1.2 and later, and nothing else.
func TestServeTLS(t *testing.T) {
	cert, key, roots := certificate(t)
	_, url, _ := serveProgram(t, "--tls-cert", cert, "--tls-key", key)
	client := func(c *tls.Config) *http.Client {
		c.RootCAs = roots
		return &http.Client{Transport: &http.Transport{TLSClientConfig: c}}
	}
	secure := strings.Replace(url, "http:", "https:", 1)
	for name, c := range map[string]struct {
		client *http.Client
		url    string
		status int // 0: no answer
	}{
		"TLS":                  {client(new(tls.Config)), secure, http.StatusOK},
		"plain":                {http.DefaultClient, url, http.StatusBadRequest},
		"TLS 1.1":              {client(&tls.Config{MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11}), secure, 0},
		"unknown certificates": {http.DefaultClient, secure, 0},
	} {
		r, err := c.client.Get(c.url + "/health")
		status := 0
		if err == nil {
			status = r.StatusCode
			r.Body.Close()
		}
		if status != c.status {
			t.Errorf("%s: got status %d (error %v), want %d", name, status, err, c.status)
		}
	}
}

// certificate makes files of one for 127.0.0.1, signed by itself, and of its key.
func certificate(t *testing.T) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: signed}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(signed)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(parsed)
	return cert, key, roots
}

func TestServeRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	empty := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(empty, []byte("# none\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", taken.Addr().String()}, "address already in use"},
		{[]string{"--listen", "nowhere"}, "missing port"},
		{[]string{"--keys", empty}, "got no key"},
		{[]string{"--keys", empty + "x"}, "no such file"},
		{[]string{"--admin-keys", empty}, "--admin-keys " + empty + ": got no key"},
		{[]string{"--cors-origin", "*"}, "want keys, too"},
		{[]string{"--allowed-hosts", "glimpse,http://a"}, "without a port"},
		{[]string{"--adapter-dir", empty + ".d"}, "no such file"},
		{[]string{"--tls-cert", empty}, "want both or none"},
		{[]string{"--tls-cert", empty, "--tls-key", empty}, "failed to find any PEM data"},
		{[]string{"--policy", "snapkv,h2o"}, "want one"},
		{[]string{"--budget", "25%"}, "--budget 25% without --policy: the whole cache is kept, want --policy lookaheadkv"},
		{[]string{"--memory", "1MiB", "--prefix-cache", "2MiB"}, "want more"},
		{[]string{"--max-num-seqs", "0"}, "want 1 to"},
		{[]string{"--prefix-cache", "0", "--prefix-dir", empty + ".d"}, "no memory for them"},
	} {
		p := exec.Command(os.Args[0], append([]string{"serve", "--listen", "127.0.0.1:0"}, c.args...)...)
		p.Env = append(os.Environ(), asProgram+"=1")
		out, err := p.CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%v: error %v, %s; want one that says %q", c.args, err, out, c.want)
		}
	}
}

// TestServeWarnsOfOpenKeys: of files of keys that everybody on the machine may read or change.
func TestServeWarnsOfOpenKeys(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no such permissions")
	}
	for _, c := range []struct {
		mode os.FileMode
		warn bool
	}{{0o600, false}, {0o640, false}, {0o644, true}, {0o602, true}} {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		_, _, log := serveProgram(t, "--keys", path)
		if warned := strings.Contains(log.String(), "everybody on this machine may read or change"); warned != c.warn {
			t.Errorf("a file of keys with mode %o: warned %t, want %t: %s", c.mode, warned, c.warn, log)
		}
	}
}

// TestServeHalfClosed: a client that ends its side behind the request, as nc -N does, gets its answer.
func TestServeHalfClosed(t *testing.T) {
	_, url, _ := serveProgram(t)
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := `{"prompt":"never karl","ignore_eos":true,"max_tokens":500}`
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(answer), `"completion_tokens":500`) {
		t.Errorf("answer %q, error %v", answer, err)
	}
}
