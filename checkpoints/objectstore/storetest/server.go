// Package storetest gives tests an S3 server: a small one in memory and, where the
// environment names its program, a real one, versitygw. Both are behind a proxy that
// disturbs the traffic.
package storetest

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Bucket is the bucket that the servers have.
const Bucket = "test"

const (
	testKey    = "glimpse-test-key"
	testSecret = "glimpse-test-secret"

	// binaryVariable names the versitygw program, a real S3 server: with it the tests
	// run against that as well.
	binaryVariable = "GLIMPSE_VERSITYGW"
)

// Server is an S3 server behind a proxy that disturbs the traffic.
type Server struct {
	*proxy
	Real bool // not the one in memory, which looks at no signatures
	fake *fakeS3
	dir  string // of a real server: the bucket's files
}

// Each runs a test on the server in memory and, where there is one, on a real
// one.
func Each(t *testing.T, f func(t *testing.T, s *Server)) {
	t.Setenv("AWS_ACCESS_KEY_ID", testKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", testSecret)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Run("memory", func(t *testing.T) {
		fake := newFake()
		direct := httptest.NewServer(fake)
		t.Cleanup(direct.Close)
		f(t, &Server{proxy: newProxy(t, direct.URL), fake: fake})
	})
	if binary := os.Getenv(binaryVariable); binary != "" {
		t.Run("versitygw", func(t *testing.T) {
			endpoint, dir := startGateway(t, binary)
			f(t, &Server{proxy: newProxy(t, endpoint), Real: true, dir: dir})
		})
	}
}

// PartBytes is the least size of a part but the last: that of S3, which a test of the server in
// memory alone may lower.
var PartBytes int64 = 5 << 20

// HasGateway tells whether tests have a real server, too.
func HasGateway() bool { return os.Getenv(binaryVariable) != "" }

// startGateway runs a real server for the length of the test.
func startGateway(t *testing.T, binary string) (endpoint, bucketDir string) {
	t.Helper()
	root, side := t.TempDir(), t.TempDir()
	bucketDir = filepath.Join(root, Bucket)
	if err := os.Mkdir(bucketDir, 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	cmd := exec.Command(binary, "-a", testKey, "-s", testSecret, "-q", "--health", "/health", "--port", address, "posix", "--sidecar", side, root)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("the server said: %s", log.String())
		}
	})
	for range 2400 { // a minute: the program may not be in memory, and the machine busy
		if r, err := http.Get("http://" + address + "/health"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return "http://" + address, bucketDir
			}
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Fatalf("%s does not answer at %s: %s", binary, address, log.String())
	return "", ""
}

// Alter changes a byte of a stored object behind the server's back.
func (s *Server) Alter(t *testing.T, key string, at int) {
	t.Helper()
	if s.fake != nil {
		s.fake.mu.Lock()
		defer s.fake.mu.Unlock()
		o := s.fake.objects[Bucket+"/"+key]
		o.data = append([]byte(nil), o.data...)
		o.data[at] ^= 4
		s.fake.objects[Bucket+"/"+key] = o
		return
	}
	path := filepath.Join(s.dir, filepath.FromSlash(key))
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[at] ^= 4
	if err := os.WriteFile(path, data, 0); err != nil {
		t.Fatal(err)
	}
}

// Age makes a stored object look as if it had been stored so long ago.
func (s *Server) Age(t *testing.T, key string, by time.Duration) {
	t.Helper()
	if s.fake != nil {
		s.fake.mu.Lock()
		defer s.fake.mu.Unlock()
		o, ok := s.fake.objects[Bucket+"/"+key]
		if !ok {
			t.Fatalf("no object %s", key)
		}
		o.modified = time.Now().Add(-by)
		s.fake.objects[Bucket+"/"+key] = o
		return
	}
	when := time.Now().Add(-by)
	if err := os.Chtimes(filepath.Join(s.dir, filepath.FromSlash(key)), when, when); err != nil {
		t.Fatal(err)
	}
}

// stall is how long a Stall lasts.
const stall = 2 * time.Second

// Fault is what the proxy does to a request.
type Fault int

// The faults.
const (
	Pass       Fault = iota
	CutRequest       // closes the connection in the middle of the request's body
	CutAnswer        // closes it in the middle of the answer's body
	LoseAnswer       // forwards the request, and closes instead of answering
	SlowDown         // answers 503 SlowDown
	Broken           // answers 500 InternalError
	Down             // closes at once
	Stall            // reads half of the request's body and closes after a while, in which its sender can be killed

	IgnoreRange // answers with the whole object, as some servers and proxies do
	WrongRange  // answers with another range of the same length
	OtherETag   // answers with the tag of another version
	OtherSize   // answers a range as of an object of another size
	Malformed   // answers 200 with half of an XML document
	BadDigest   // answers 400 BadDigest
)

// proxy forwards requests to a server and disturbs some.
type proxy struct {
	URL string // of the proxy
	// decide is asked before every request; tests set it while nothing is going on.
	decide func(r *http.Request) Fault

	mu  sync.Mutex
	log []Call
}

// Call is one that the proxy has seen.
type Call struct {
	Name string // such as "PUT x?partNumber=2"
	Time time.Time
	Span string // its Range, if it asks for one
}

func newProxy(t *testing.T, target string) *proxy {
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, r.In.Host // which is signed
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.log = append(p.log, Call{RequestName(r), time.Now(), r.Header.Get("Range")})
		f := Pass
		if p.decide != nil {
			f = p.decide(r)
		}
		p.mu.Unlock()
		record := func() *httptest.ResponseRecorder {
			answer := httptest.NewRecorder()
			forward.ServeHTTP(answer, r)
			maps.Copy(w.Header(), answer.Header())
			return answer
		}
		switch f {
		case Pass:
			forward.ServeHTTP(w, r)
		case SlowDown:
			refuse(w, http.StatusServiceUnavailable, "SlowDown")
		case Broken:
			refuse(w, http.StatusInternalServerError, "InternalError")
		case Down:
			hangUp(w)
		case CutRequest:
			io.CopyN(io.Discard, r.Body, r.ContentLength/2)
			hangUp(w)
		case Stall:
			io.CopyN(io.Discard, r.Body, r.ContentLength/2)
			time.Sleep(stall)
			hangUp(w)
		case LoseAnswer:
			record()
			hangUp(w)
		case IgnoreRange:
			r.Header.Del("Range")
			forward.ServeHTTP(w, r)
		case WrongRange:
			var from, to int64
			if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); n == 2 {
				shift := int64(1)
				if from > 0 {
					shift = -1
				}
				r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from+shift, to+shift))
			}
			forward.ServeHTTP(w, r)
		case OtherSize:
			answer := record()
			bytes, _, _ := strings.Cut(w.Header().Get("Content-Range"), "/")
			w.Header().Set("Content-Range", bytes+"/1")
			w.WriteHeader(answer.Code)
			w.Write(answer.Body.Bytes())
		case OtherETag:
			answer := record()
			w.Header().Set("ETag", `"00000000000000000000000000000000"`)
			w.WriteHeader(answer.Code)
			w.Write(answer.Body.Bytes())
		case BadDigest:
			refuse(w, http.StatusBadRequest, "BadDigest")
		case Malformed:
			w.Header().Set("Content-Type", "application/xml")
			io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>`)
		case CutAnswer:
			answer := record()
			w.Header().Set("Content-Length", fmt.Sprint(answer.Body.Len()))
			w.WriteHeader(answer.Code)
			w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
			w.(http.Flusher).Flush()
			hangUp(w, "after what was sent")
		}
	}))
	t.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

// hangUp closes the connection: by a reset, as of a network that breaks, or in order.
func hangUp(w http.ResponseWriter, inOrder ...string) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		if tcp, ok := c.(*net.TCPConn); ok && len(inOrder) == 0 {
			tcp.SetLinger(0)
		}
		c.Close()
	}
}

// RequestName is method, key and the parameters that tell requests apart.
func RequestName(r *http.Request) string {
	name := r.Method + " " + strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/"+Bucket), "/")
	q := r.URL.Query()
	switch {
	case q.Has("partNumber"):
		name += "?part=" + q.Get("partNumber")
	case q.Has("uploads"):
		name += "?uploads"
	case q.Has("uploadId"):
		name += "?upload"
	}
	return name
}

// Disturb sets what happens to requests and forgets the log.
func (p *proxy) Disturb(decide func(r *http.Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide, p.log = decide, nil
}

// Count is the number of requests since Disturb whose name starts with the text.
func (p *proxy) Count(start string) int { return len(p.Requests(start)) }

// Requests are those that Count counts.
func (p *proxy) Requests(start string) (list []Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.log {
		if strings.HasPrefix(r.Name, start) {
			list = append(list, r)
		}
	}
	return list
}

// First disturbs the first n requests of every name that starts with the text.
func First(n int, start string, f Fault) func(*http.Request) Fault {
	seen := make(map[string]int)
	return func(r *http.Request) Fault {
		name := RequestName(r)
		if !strings.HasPrefix(name, start) {
			return Pass
		}
		seen[name]++
		if seen[name] > n {
			return Pass
		}
		return f
	}
}

// Content is so many bytes that depend on the seed alone.
func Content(seed uint64, size int) []byte {
	data := make([]byte, size)
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	rand.NewChaCha8(key).Read(data)
	return data
}
