package hub

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	commitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	commitB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// fakeHub speaks the few calls of the hub that a download makes, as huggingface.co
// answers them: the API's description of a revision, and resolve with its headers,
// which redirects to a second server, the storage, for large files.
type fakeHub struct {
	t            *testing.T
	id           string
	hub, storage *httptest.Server

	mu       sync.Mutex
	refs     map[string]string            // revision to commit
	commits  map[string]map[string][]byte // files of each
	token    string                       // that is asked for; "" asks for none
	refuse   func(w http.ResponseWriter)  // answer to a request with a wrong token
	requests []string                     // "METHOD host path [range]"
	tokens   map[string]int               // requests with a token, by host
	// serve may answer for the storage; it returns false to leave it to the server.
	serve func(w http.ResponseWriter, r *http.Request, name string, data []byte) bool
	// alter may change the headers of an answer to HEAD.
	alter func(name string, h http.Header)
}

// isLarge tells whether the hub keeps the file in its large-file storage.
func isLarge(name string) bool {
	return strings.HasSuffix(name, ".safetensors") || name == "tokenizer.json"
}

func etagOf(name string, data []byte) string {
	if isLarge(name) {
		sum := sha256.Sum256(data)
		return hex.EncodeToString(sum[:])
	}
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...))
	return hex.EncodeToString(sum[:])
}

// wholeModel is a model with all files, and some that are not wanted.
func wholeModel() map[string][]byte {
	weights := make([]byte, 300_000)
	for i := range weights {
		weights[i] = byte(i * i >> 5)
	}
	return map[string][]byte{
		"config.json":                []byte(`{"architectures": ["LlamaForCausalLM"]}`),
		"generation_config.json":     []byte(`{"eos_token_id": 2}`),
		"tokenizer.json":             []byte(`{"version": "1.0"}`),
		"tokenizer_config.json":      []byte(`{}`),
		"chat_template.jinja":        []byte("{{ messages }}"),
		"model.safetensors":          weights,
		"pytorch_model.bin":          []byte("pickle"),
		"README.md":                  []byte("# model"),
		"original/params.json":       []byte("{}"),
		"consolidated.safetensors":   []byte("again"),
		"onnx/model.onnx":            []byte("onnx"),
		"subfolder/config.json":      []byte("{}"),
		"tokenizer.model":            []byte("sentencepiece"),
		"special_tokens_map.json":    []byte("{}"),
		"../../../../etc/passwd":     []byte("root"),
		"runs/events.out.tfevents.1": []byte("events"),
	}
}

// shardedModel is one of two shards.
func shardedModel() map[string][]byte {
	m := wholeModel()
	whole := m[singleFile]
	delete(m, singleFile)
	m["model-00001-of-00002.safetensors"], m["model-00002-of-00002.safetensors"] = whole[:100_000], whole[100_000:]
	m[indexFile] = []byte(`{"weight_map": {"b": "model-00002-of-00002.safetensors", "a": "model-00001-of-00002.safetensors", "c": "model-00001-of-00002.safetensors"}}`)
	return m
}

// newFakeHub serves files as org/tiny at main, and points the environment to it
// and to an empty cache.
func newFakeHub(t *testing.T, files map[string][]byte) *fakeHub {
	h := &fakeHub{
		t: t, id: "org/tiny", tokens: make(map[string]int),
		refs: map[string]string{"main": commitA}, commits: map[string]map[string][]byte{commitA: files},
	}
	h.hub = httptest.NewServer(http.HandlerFunc(h.answer))
	t.Cleanup(h.hub.Close)
	h.storage = httptest.NewServer(http.HandlerFunc(h.store))
	t.Cleanup(h.storage.Close)
	home := t.TempDir()
	for name, value := range map[string]string{
		"HF_HOME": home, "HF_ENDPOINT": h.hub.URL, "HF_TOKEN": "", "HF_HUB_OFFLINE": "", "HF_HUB_CACHE": "", "HF_TOKEN_PATH": "",
		"HUGGINGFACE_HUB_CACHE": "", "HUGGING_FACE_HUB_TOKEN": "", "TRANSFORMERS_OFFLINE": "", "HTTP_PROXY": "", "http_proxy": "",
	} {
		t.Setenv(name, value)
	}
	return h
}

func (h *fakeHub) log(r *http.Request, host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, strings.TrimSpace(r.Method+" "+host+" "+r.URL.Path+" "+r.Header.Get("Range")))
	if r.Header.Get("Authorization") != "" {
		h.tokens[host]++
	}
}

func (h *fakeHub) answer(w http.ResponseWriter, r *http.Request) {
	h.log(r, "hub")
	if h.token != "" && r.Header.Get("Authorization") != "Bearer "+h.token {
		h.refuse(w)
		return
	}
	fail := func(code string) {
		w.Header().Set("X-Error-Code", code)
		w.WriteHeader(http.StatusNotFound)
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, "/api/models/"); ok {
		id, revision, _ := strings.Cut(rest, "/revision/")
		if id != h.id {
			fail("RepoNotFound")
			return
		}
		sha := h.commit(revision)
		if sha == "" {
			fail("RevisionNotFound")
			return
		}
		type sibling struct {
			Name string `json:"rfilename"`
		}
		var siblings []sibling
		for name := range h.commits[sha] {
			siblings = append(siblings, sibling{name})
		}
		json.NewEncoder(w).Encode(map[string]any{"id": h.id, "sha": sha, "siblings": siblings, "private": false})
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/"+h.id+"/resolve/")
	revision, name, _ := strings.Cut(rest, "/")
	sha := h.commit(revision)
	data, there := h.commits[sha][name]
	if !ok || !there {
		fail("EntryNotFound")
		return
	}
	head := w.Header()
	head.Set("X-Repo-Commit", sha)
	etag := `"` + etagOf(name, data) + `"`
	if !isLarge(name) {
		// As huggingface.co: first a relative redirect to another place of the hub.
		if !r.URL.Query().Has("cached") {
			w.Header().Set("Location", r.URL.Path+"?cached")
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		head.Set("ETag", "W/"+etag)
		if h.alter != nil && r.Method == http.MethodHead {
			h.alter(name, head)
		}
		http.ServeContent(w, r, name, time.Time{}, strings.NewReader(string(data)))
		return
	}
	head.Set(linkedETag, etag)
	head.Set(linkedSize, fmt.Sprint(len(data)))
	head.Set("ETag", `"of-the-redirect"`)
	if h.alter != nil && r.Method == http.MethodHead {
		h.alter(name, head)
	}
	head.Set("Location", h.storage.URL+"/"+sha+"/"+name+"?Signature=secret")
	w.WriteHeader(http.StatusFound)
}

func (h *fakeHub) store(w http.ResponseWriter, r *http.Request) {
	h.log(r, "storage")
	sha, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	data := h.commits[sha][name]
	if h.serve != nil && h.serve(w, r, name, data) {
		return
	}
	w.Header().Set("ETag", `"md5-of-the-storage"`)
	http.ServeContent(w, r, name, time.Time{}, strings.NewReader(string(data)))
}

func (h *fakeHub) commit(revision string) string {
	if h.commits[revision] != nil {
		return revision
	}
	return h.refs[revision]
}

// count counts the requests that begin so.
func (h *fakeHub) count(prefix string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, r := range h.requests {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

// cut serves the first n bytes of what is asked for, and breaks the connection.
func cut(w http.ResponseWriter, r *http.Request, data []byte, n int) {
	from := 0
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(data)-from))
	if from > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	w.Write(data[from:min(from+n, len(data))])
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// find resolves with short pauses.
func find(t *testing.T, spec string) (Model, error) {
	t.Helper()
	f, err := newFetcher(spec, Options{Log: testLog{t}})
	if err != nil {
		return Model{}, err
	}
	f.client.pause = time.Millisecond
	return f.find(t.Context())
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Logf("%s", strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// mustFind also checks the files of the folder against those of the commit.
func (h *fakeHub) mustFind(spec, sha string) Model {
	h.t.Helper()
	m, err := find(h.t, spec)
	if err != nil {
		h.t.Fatal(err)
	}
	if filepath.Base(m.Dir) != sha || m.Name != h.id {
		h.t.Fatalf("found %+v, want commit %s of %s", m, sha, h.id)
	}
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		h.t.Fatal(err)
	}
	wanted := 0
	for name, data := range h.commits[sha] {
		switch name {
		case "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "glimpse_policies.json", singleFile, indexFile:
		default:
			if !strings.HasPrefix(name, "model-0") {
				continue
			}
		}
		wanted++
		if got, err := os.ReadFile(filepath.Join(m.Dir, name)); err != nil || string(got) != string(data) {
			h.t.Errorf("%s: %d bytes (%v), want the %d of the hub", name, len(got), err, len(data))
		}
	}
	if len(entries) != wanted {
		h.t.Errorf("snapshot %v, want %d files", entries, wanted)
	}
	return m
}

func (h *fakeHub) cacheDir() string {
	return filepath.Join(os.Getenv("HF_HOME"), "hub", "models--org--tiny")
}
