// Package hubtest has a local server that speaks like the Hugging Face hub.
package hubtest

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Commits of a test.
const (
	CommitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	CommitB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

const (
	linkedETag = "X-Linked-Etag"
	linkedSize = "X-Linked-Size"
)

// Server speaks the few calls of the hub that a download makes, as huggingface.co
// answers them: the API's description of a revision, and resolve with its headers,
// which redirects to a second server, the storage, for large files.
type Server struct {
	ID           string // org/name of the only model
	Hub, Storage *httptest.Server
	Home         string // HF_HOME of the test, empty at first

	Refs    map[string]string            // revision to commit
	Commits map[string]map[string][]byte // files of each
	Token   string                       // that is asked for; "" asks for none
	Refuse  func(w http.ResponseWriter)  // answer to a request with a wrong token
	// Serve may answer for the storage; it returns false to leave it to the server.
	Serve func(w http.ResponseWriter, r *http.Request, name string, data []byte) bool
	// Alter may change the headers of an answer to HEAD.
	Alter func(name string, h http.Header)

	Mu       sync.Mutex     // guards Requests and Tokens
	Requests []string       // "METHOD host path [range]", host being hub or storage
	Tokens   map[string]int // requests with a token, by host
}

// IsLarge tells whether the hub keeps the file in its large-file storage.
func IsLarge(name string) bool {
	return strings.HasSuffix(name, ".safetensors") || name == "tokenizer.json"
}

// ETag is the hub's hash of a file: SHA-256 of a large one, Git's
// blob hash of a small one.
func ETag(name string, data []byte) string {
	if IsLarge(name) {
		sum := sha256.Sum256(data)
		return hex.EncodeToString(sum[:])
	}
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...))
	return hex.EncodeToString(sum[:])
}

// New serves files as org/tiny at main, which is CommitA, and points the
// environment to it and to an empty cache until the test ends.
func New(t *testing.T, files map[string][]byte) *Server {
	h := &Server{
		ID: "org/tiny", Home: t.TempDir(), Tokens: make(map[string]int),
		Refs: map[string]string{"main": CommitA}, Commits: map[string]map[string][]byte{CommitA: files},
	}
	h.Hub = httptest.NewServer(http.HandlerFunc(h.answer))
	t.Cleanup(h.Hub.Close)
	h.Storage = httptest.NewServer(http.HandlerFunc(h.store))
	t.Cleanup(h.Storage.Close)
	for name, value := range map[string]string{
		"HF_HOME": h.Home, "HF_ENDPOINT": h.Hub.URL, "HF_TOKEN": "", "HF_HUB_OFFLINE": "", "HF_HUB_CACHE": "", "HF_TOKEN_PATH": "",
		"HUGGINGFACE_HUB_CACHE": "", "HUGGING_FACE_HUB_TOKEN": "", "TRANSFORMERS_OFFLINE": "", "HTTP_PROXY": "", "http_proxy": "",
	} {
		t.Setenv(name, value)
	}
	return h
}

func (h *Server) log(r *http.Request, host string) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	h.Requests = append(h.Requests, strings.TrimSpace(r.Method+" "+host+" "+r.URL.Path+" "+r.Header.Get("Range")))
	if r.Header.Get("Authorization") != "" {
		h.Tokens[host]++
	}
}

func (h *Server) answer(w http.ResponseWriter, r *http.Request) {
	h.log(r, "hub")
	if h.Token != "" && r.Header.Get("Authorization") != "Bearer "+h.Token {
		h.Refuse(w)
		return
	}
	fail := func(code string) {
		w.Header().Set("X-Error-Code", code)
		w.WriteHeader(http.StatusNotFound)
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, "/api/models/"); ok {
		id, revision, _ := strings.Cut(rest, "/revision/")
		if id != h.ID {
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
		for name := range h.Commits[sha] {
			siblings = append(siblings, sibling{name})
		}
		json.NewEncoder(w).Encode(map[string]any{"id": h.ID, "sha": sha, "siblings": siblings, "private": false})
		return
	}
	// As huggingface.co: small files are at another place of the hub.
	cached := "/api/resolve-cache/models/" + h.ID + "/"
	rest, resolved := strings.CutPrefix(r.URL.Path, "/"+h.ID+"/resolve/")
	if !resolved {
		rest = strings.TrimPrefix(r.URL.Path, cached)
	}
	revision, name, _ := strings.Cut(rest, "/")
	sha := h.commit(revision)
	data, there := h.Commits[sha][name]
	if !there {
		fail("EntryNotFound")
		return
	}
	head := w.Header()
	head.Set("X-Repo-Commit", sha)
	etag := `"` + ETag(name, data) + `"`
	if !IsLarge(name) {
		if resolved {
			head.Set("Location", cached+sha+"/"+name)
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		head.Set("ETag", "W/"+etag)
		if h.Alter != nil && r.Method == http.MethodHead {
			h.Alter(name, head)
		}
		http.ServeContent(w, r, name, time.Time{}, strings.NewReader(string(data)))
		return
	}
	head.Set(linkedETag, etag)
	head.Set(linkedSize, fmt.Sprint(len(data)))
	head.Set("ETag", `"of-the-redirect"`)
	if h.Alter != nil && r.Method == http.MethodHead {
		h.Alter(name, head)
	}
	head.Set("Location", h.Storage.URL+"/"+sha+"/"+name+"?Signature=secret")
	w.WriteHeader(http.StatusFound)
}

func (h *Server) store(w http.ResponseWriter, r *http.Request) {
	h.log(r, "storage")
	sha, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	data := h.Commits[sha][name]
	if h.Serve != nil && h.Serve(w, r, name, data) {
		return
	}
	w.Header().Set("ETag", `"md5-of-the-storage"`)
	http.ServeContent(w, r, name, time.Time{}, strings.NewReader(string(data)))
}

func (h *Server) commit(revision string) string {
	if h.Commits[revision] != nil {
		return revision
	}
	return h.Refs[revision]
}

// Count counts the requests that begin so.
func (h *Server) Count(prefix string) int {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	n := 0
	for _, r := range h.Requests {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

// Cut serves the first n bytes that are asked for, and breaks the connection.
func Cut(w http.ResponseWriter, r *http.Request, data []byte, n int) {
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
