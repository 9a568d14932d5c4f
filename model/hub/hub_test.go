package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"glimpse/model/hub/hubtest"
)

// TestDownload: the files wanted and no others, in the layout of huggingface_hub;
// a second call asks nobody.
func TestDownload(t *testing.T) {
	for name, files := range map[string]map[string][]byte{"one file": wholeModel(), "shards": shardedModel()} {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t, files)
			m := h.mustFind("org/tiny", commitA)
			if want := filepath.Join(h.cacheDir(), "snapshots", commitA); m.Path != want {
				t.Errorf("folder %s, want %s", m.Path, want)
			}
			if ref, err := os.ReadFile(filepath.Join(h.cacheDir(), "refs", "main")); err != nil || string(ref) != commitA {
				t.Errorf("refs/main holds %q (%v), want %s without a line break", ref, err, commitA)
			}
			link, err := os.Readlink(filepath.Join(m.Path, "config.json"))
			if want := "../../blobs/" + hubtest.ETag("config.json", files["config.json"]); err != nil || link != want {
				t.Errorf("config.json leads to %q (%v), want %q", link, err, want)
			}
			blobs, _ := filepath.Glob(filepath.Join(h.cacheDir(), "blobs", "*"))
			entries, _ := os.ReadDir(m.Path)
			if len(blobs) != len(entries) {
				t.Errorf("%d blobs for %d files: %v", len(blobs), len(entries), blobs)
			}
			asked := len(h.Requests)
			h.mustFind("org/tiny", commitA)
			h.mustFind("org/tiny@"+commitA, commitA)
			if len(h.Requests) != asked {
				t.Errorf("a cached model was asked for again: %v", h.Requests[asked:])
			}
		})
	}
}

// TestRevisions: branches, tags with a slash and commits share blobs; the cache
// keeps to the commit that it knows.
func TestRevisions(t *testing.T) {
	h := newFakeHub(t, wholeModel())
	next := wholeModel()
	next["config.json"] = []byte(`{"architectures": ["Qwen3ForCausalLM"]}`)
	h.Commits[commitB], h.Refs["refs/pr/1"] = next, commitB
	h.mustFind("org/tiny", commitA)
	h.mustFind("org/tiny@refs/pr/1", commitB)
	if ref, err := os.ReadFile(filepath.Join(h.cacheDir(), "refs", "refs", "pr", "1")); err != nil || string(ref) != commitB {
		t.Errorf("refs/refs/pr/1 holds %q (%v)", ref, err)
	}
	if n := h.Count("GET storage /" + commitB + "/model.safetensors"); n != 0 {
		t.Errorf("equal weights were fetched again")
	}
	h.Refs["main"] = commitB
	h.mustFind("org/tiny", commitA)
	os.Remove(filepath.Join(h.cacheDir(), "refs", "main"))
	h.mustFind("org/tiny", commitB)
}

// TestToken: it reaches the hub, from each of its places, and no other host.
func TestToken(t *testing.T) {
	for name, set := range map[string]func(home string){
		"variable":     func(string) { os.Setenv("HF_TOKEN", " hf_secret\n") },
		"old variable": func(string) { os.Setenv("HUGGING_FACE_HUB_TOKEN", "hf_secret") },
		"file":         func(home string) { os.WriteFile(filepath.Join(home, "token"), []byte("hf_secret\n"), 0o600) },
		"file of a path": func(home string) {
			os.Setenv("HF_TOKEN_PATH", filepath.Join(home, "t"))
			os.WriteFile(filepath.Join(home, "t"), []byte("hf_secret"), 0o600)
		},
		"variable first": func(home string) {
			os.Setenv("HF_TOKEN", "hf_secret")
			os.WriteFile(filepath.Join(home, "token"), []byte("other"), 0o600)
		},
		"path with a ~ ": func(home string) {
			os.Setenv("HOME", home)
			os.Setenv("HF_TOKEN_PATH", "~/t")
			os.WriteFile(filepath.Join(home, "t"), []byte("hf_secret"), 0o600)
		},
		"path by variable": func(home string) {
			os.Setenv("HOME", home)
			os.Setenv("HF_TOKEN_PATH", "$HOME/t")
			os.WriteFile(filepath.Join(home, "t"), []byte("hf_secret"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t, shardedModel())
			t.Setenv("HOME", os.Getenv("HOME"))
			set(os.Getenv("HF_HOME"))
			h.Token, h.Refuse = "hf_secret", func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }
			h.mustFind("org/tiny", commitA)
			if h.Tokens["hub"] == 0 || h.Tokens["storage"] != 0 || h.Count("GET storage") == 0 {
				t.Errorf("tokens by host: %v, want some at the hub and none at the storage", h.Tokens)
			}
		})
	}
}

// TestCut: connections that break are resumed where they broke, also by a later
// run, and whatever of the file was there before.
func TestCut(t *testing.T) {
	const weights = "GET storage /" + commitA + "/model.safetensors"
	for name, c := range map[string]struct {
		before func(h fakeHub, blob string)
		serve  func(try int, w http.ResponseWriter, r *http.Request, data []byte) bool
		want   []string // the ranges asked for
	}{
		"whole": {want: []string{""}},
		"cut twice": {
			serve: func(try int, w http.ResponseWriter, r *http.Request, data []byte) bool {
				if try < 2 {
					hubtest.Cut(w, r, data, 100_000)
				}
				return false
			},
			want: []string{"", "bytes=100000-", "bytes=200000-"},
		},
		"many cuts, each with some progress": {
			serve: func(try int, w http.ResponseWriter, r *http.Request, data []byte) bool {
				if try < 9 {
					hubtest.Cut(w, r, data, 10_000)
				}
				return false
			},
			want: []string{"", "bytes=10000-", "bytes=20000-", "bytes=30000-", "bytes=40000-", "bytes=50000-", "bytes=60000-", "bytes=70000-", "bytes=80000-", "bytes=90000-"},
		},
		"a part is there": {
			before: func(h fakeHub, blob string) {
				os.WriteFile(blob+".incomplete", wholeModel()[singleFile][:250_000], 0o644)
			},
			want: []string{"bytes=250000-"},
		},
		"all is there": {
			before: func(h fakeHub, blob string) { os.WriteFile(blob+".incomplete", wholeModel()[singleFile], 0o644) },
		},
		"a wrong part is there": {
			before: func(h fakeHub, blob string) { os.WriteFile(blob+".incomplete", make([]byte, 250_000), 0o644) },
			want:   []string{"bytes=250000-", ""},
		},
		"too much is there": {
			before: func(h fakeHub, blob string) { os.WriteFile(blob+".incomplete", make([]byte, 400_000), 0o644) },
			want:   []string{""},
		},
		"a blob of another size is there": {
			before: func(h fakeHub, blob string) { os.WriteFile(blob, make([]byte, 10), 0o644) },
			want:   []string{""},
		},
		"ranges are ignored": {
			before: func(h fakeHub, blob string) { os.WriteFile(blob+".incomplete", make([]byte, 250_000), 0o644) },
			serve: func(_ int, w http.ResponseWriter, _ *http.Request, data []byte) bool {
				w.Write(data)
				return true
			},
			want: []string{"bytes=250000-"},
		},
		"ranges are refused": {
			before: func(h fakeHub, blob string) { os.WriteFile(blob+".incomplete", make([]byte, 250_000), 0o644) },
			serve: func(_ int, w http.ResponseWriter, r *http.Request, _ []byte) bool {
				if r.Header.Get("Range") == "" {
					return false
				}
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
				return true
			},
			want: []string{"bytes=250000-", ""},
		},
		"busy, then an expired link": {
			serve: func(try int, w http.ResponseWriter, _ *http.Request, _ []byte) bool {
				if try < 2 {
					w.WriteHeader([]int{http.StatusServiceUnavailable, http.StatusForbidden}[try])
				}
				return try < 2
			},
			want: []string{"", "", ""},
		},
		"slow but steady": {
			serve: func(_ int, w http.ResponseWriter, _ *http.Request, data []byte) bool {
				for i := range 10 {
					w.Write(data[i*30_000 : (i+1)*30_000])
					w.(http.Flusher).Flush()
					time.Sleep(40 * time.Millisecond)
				}
				return true
			},
			want: []string{""},
		},
		"silence": {
			serve: func(try int, w http.ResponseWriter, r *http.Request, data []byte) bool {
				if try > 0 {
					return false
				}
				w.Header().Set("Content-Length", fmt.Sprint(len(data)))
				w.Write(data[:5000])
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				return true
			},
			want: []string{"", "bytes=5000-"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t, wholeModel())
			if c.before != nil {
				blob := filepath.Join(h.cacheDir(), "blobs", hubtest.ETag(singleFile, wholeModel()[singleFile]))
				if err := os.MkdirAll(filepath.Dir(blob), 0o755); err != nil {
					t.Fatal(err)
				}
				c.before(h, blob)
			}
			var try atomic.Int32
			h.Serve = func(w http.ResponseWriter, r *http.Request, name string, data []byte) bool {
				return name == singleFile && c.serve != nil && c.serve(int(try.Add(1))-1, w, r, data)
			}
			f, err := newFetcher("org/tiny", nil)
			if err != nil {
				t.Fatal(err)
			}
			f.client.pause, f.client.http.Silence = time.Millisecond, 200*time.Millisecond
			if _, err := f.findModel(t.Context()); err != nil {
				t.Fatal(err)
			}
			h.mustFind("org/tiny", commitA)
			var ranges []string
			for _, r := range h.Requests {
				if rest, ok := strings.CutPrefix(r, weights); ok {
					ranges = append(ranges, strings.TrimSpace(rest))
				}
			}
			if !slices.Equal(ranges, c.want) {
				t.Errorf("asked for ranges %q, want %q", ranges, c.want)
			}
			if left, _ := filepath.Glob(filepath.Join(h.cacheDir(), "blobs", "*.incomplete")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestLaterRun: what a failed run has received is not received again, and the file
// of a new commit does not continue an old one.
func TestLaterRun(t *testing.T) {
	h := newFakeHub(t, wholeModel())
	h.Serve = func(w http.ResponseWriter, r *http.Request, name string, data []byte) bool {
		if name != singleFile {
			return false
		}
		if r.Header.Get("Range") == "" {
			hubtest.Cut(w, r, data, 120_000)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	if _, err := find(t, "org/tiny"); err == nil || !strings.Contains(err.Error(), "503") {
		t.Fatalf("error %v, want that of the storage", err)
	}
	if _, err := os.Stat(filepath.Join(h.cacheDir(), "refs", "main")); err == nil {
		t.Error("refs/main names an unfinished snapshot")
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	if m, err := find(t, "org/tiny"); err == nil {
		t.Errorf("an unfinished model was found: %v", m)
	}
	t.Setenv("HF_HUB_OFFLINE", "")

	next := wholeModel()
	next[singleFile] = bytes.ToUpper(next[singleFile])
	h.Mu.Lock()
	h.Serve, h.Requests = nil, nil
	h.Commits[commitB], h.Refs["main"] = next, commitB
	h.Mu.Unlock()
	h.mustFind("org/tiny", commitB)
	if n := h.Count("GET storage /" + commitB + "/model.safetensors bytes="); n != 0 {
		t.Error("a file of other content was continued")
	}
	h.mustFind("org/tiny@"+commitA, commitA)
	if n := h.Count("GET storage /" + commitA + "/model.safetensors bytes=120000-"); n != 1 {
		t.Errorf("the first file was not continued: %q", h.Requests)
	}
}

// TestInterrupted: a cancelled download ends at once and keeps what it has.
func TestInterrupted(t *testing.T) {
	h := newFakeHub(t, wholeModel())
	ctx, cancel := context.WithCancel(t.Context())
	h.Serve = func(w http.ResponseWriter, r *http.Request, name string, data []byte) bool {
		if name != singleFile || r.Header.Get("Range") != "" {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:200_000])
		w.(http.Flusher).Flush()
		for path, size := h.cacheDir()+"/blobs/"+hubtest.ETag(name, data)+".incomplete", int64(0); size < 200_000; time.Sleep(time.Millisecond) {
			if info, err := os.Stat(path); err == nil {
				size = info.Size()
			}
		}
		cancel()
		<-r.Context().Done()
		return true
	}
	if _, err := Resolve(ctx, "org/tiny", nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want context.Canceled", err)
	}
	h.mustFind("org/tiny", commitA)
	if n := h.Count("GET storage /" + commitA + "/model.safetensors bytes=200000-"); n != 1 {
		t.Errorf("requests %q, want a continuation from 200000", h.Requests)
	}
}

// TestConcurrent: several at the same time fetch each file once.
func TestConcurrent(t *testing.T) {
	h := newFakeHub(t, shardedModel())
	h.Serve = func(http.ResponseWriter, *http.Request, string, []byte) bool {
		time.Sleep(20 * time.Millisecond)
		return false
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if _, err := Resolve(t.Context(), "org/tiny", nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	h.mustFind("org/tiny", commitA)
	for name := range shardedModel() {
		if n := h.Count("GET storage /" + commitA + "/" + name); n > 1 {
			t.Errorf("%s was fetched %d times", name, n)
		}
	}
}

// TestRefusals: each says what to do.
func TestRefusals(t *testing.T) {
	refuse := func(status int, code, message string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("X-Error-Code", code)
			w.Header().Set("X-Error-Message", message)
			w.WriteHeader(status)
		}
	}
	for name, c := range map[string]struct {
		spec   string
		setup  func(t *testing.T, h fakeHub)
		want   []string
		leaves int // blobs that may be in the cache
	}{
		"no such model":    {spec: "org/other", want: []string{"no such folder", "no such model at http"}},
		"no such revision": {spec: "org/tiny@v9", want: []string{`no revision "v9"`, "/org/tiny/tree/main"}},
		"gated, no token": {spec: "org/tiny", want: []string{"gated", "ask for access at http", "/org/tiny", "set HF_TOKEN"}, setup: func(t *testing.T, h fakeHub) {
			h.Token, h.Refuse = "x", refuse(401, "GatedRepo", "Access to model org/tiny is restricted.")
		}},
		"gated, token without access": {spec: "org/tiny", want: []string{"gated", "the token of HF_TOKEN has no access yet", "Access to model org/tiny is restricted."}, setup: func(t *testing.T, h fakeHub) {
			t.Setenv("HF_TOKEN", "y")
			h.Token, h.Refuse = "x", refuse(403, "GatedRepo", "Access to model org/tiny is restricted.")
		}},
		"private or absent, no token": {spec: "org/tiny", want: []string{"does not exist or is private", "set HF_TOKEN"}, setup: func(t *testing.T, h fakeHub) {
			h.Token, h.Refuse = "x", refuse(401, "RepoNotFound", "Repository not found")
		}},
		"wrong token": {spec: "org/tiny", want: []string{"does not accept the token of HF_TOKEN", "Invalid credentials"}, setup: func(t *testing.T, h fakeHub) {
			t.Setenv("HF_TOKEN", "y")
			h.Token, h.Refuse = "x", refuse(401, "", "Invalid credentials in Authorization header")
		}},
		"token without the right": {spec: "org/tiny", want: []string{"the token of HF_TOKEN may not read the model"}, setup: func(t *testing.T, h fakeHub) {
			t.Setenv("HF_TOKEN", "y")
			h.Token, h.Refuse = "x", refuse(403, "", "")
		}},
		"too many requests": {spec: "org/tiny", want: []string{"too many requests", "429"}, setup: func(t *testing.T, h fakeHub) {
			h.Token, h.Refuse = "x", refuse(429, "", "")
		}},
		"a broken hub": {spec: "org/tiny", want: []string{"500"}, setup: func(t *testing.T, h fakeHub) {
			h.Token, h.Refuse = "x", refuse(500, "", "control\tcharacters")
		}},
		"no hub": {spec: "org/tiny", want: []string{"no answer from 127.0.0.1"}, setup: func(t *testing.T, h fakeHub) { h.Hub.Close() }},
		"not a hub": {spec: "org/tiny", want: []string{"does not answer as a hub does"}, setup: func(t *testing.T, h fakeHub) {
			h.Token, h.Refuse = "x", func(w http.ResponseWriter) { w.Write([]byte("<html>Welcome</html>")) }
		}},
		"commit that is a path": {spec: "org/tiny", want: []string{"want 40 hexadecimal digits"}, setup: func(t *testing.T, h fakeHub) {
			h.Token, h.Refuse = "x", func(w http.ResponseWriter) { w.Write([]byte(`{"sha": "../../../../tmp", "siblings": []}`)) }
		}},
		"endless answer": {spec: "org/tiny", want: []string{"longer than"}, setup: func(t *testing.T, h fakeHub) {
			h.Token, h.Refuse = "x", func(w http.ResponseWriter) {
				for range 40 {
					w.Write(bytes.Repeat([]byte(" "), 1<<20))
				}
			}
		}},
		"endless redirects": {spec: "org/tiny", want: []string{"redirects"}, setup: func(t *testing.T, h fakeHub) {
			h.Token, h.Refuse = "x", func(w http.ResponseWriter) { w.Header().Set("Location", "/again"); w.WriteHeader(302) }
		}},
		"no configuration": {spec: "org/tiny", want: []string{"no config.json"}, setup: func(t *testing.T, h fakeHub) { delete(h.Commits[commitA], "config.json") }},
		"only pickles":     {spec: "org/tiny", want: []string{"no safetensors weights", "pytorch_model.bin must first be converted"}, setup: func(t *testing.T, h fakeHub) { delete(h.Commits[commitA], singleFile) }},
		"index of absent files": {spec: "org/tiny", leaves: 1, want: []string{"names files that the hub does not have: model-2.safetensors"}, setup: func(t *testing.T, h fakeHub) {
			h.Commits[commitA] = shardedModel()
			h.Commits[commitA][indexFile] = []byte(`{"weight_map": {"a": "model-2.safetensors"}}`)
		}},
		"index that leads out": {spec: "org/tiny", leaves: 1, want: []string{`got file "../../../evil.safetensors"`}, setup: func(t *testing.T, h fakeHub) {
			h.Commits[commitA] = shardedModel()
			h.Commits[commitA][indexFile] = []byte(`{"weight_map": {"a": "../../../evil.safetensors"}}`)
			h.Commits[commitA]["../../../evil.safetensors"] = []byte("evil")
		}},
		"ETag that is a path": {spec: "org/tiny", want: []string{"want a SHA-256 or Git hash"}, setup: func(t *testing.T, h fakeHub) {
			h.Alter = func(name string, head http.Header) {
				if hubtest.IsLarge(name) {
					head.Set(linkedETag, `"../../../../evil"`)
				}
			}
		}},
		"another commit": {spec: "org/tiny", want: []string{"answered for commit"}, setup: func(t *testing.T, h fakeHub) {
			h.Alter = func(_ string, head http.Header) { head.Set(repoCommit, commitB) }
		}},
		"wrong hash of a large file": {spec: "org/tiny", leaves: 6, want: []string{"model.safetensors: content has hash"}, setup: func(t *testing.T, h fakeHub) {
			h.Serve = func(w http.ResponseWriter, _ *http.Request, name string, data []byte) bool {
				if name != singleFile {
					return false
				}
				w.Write(make([]byte, len(data)))
				return true
			}
		}},
		"wrong hash of a small file": {spec: "org/tiny", leaves: 6, want: []string{"config.json: content has hash"}, setup: func(t *testing.T, h fakeHub) {
			h.Alter = func(name string, head http.Header) {
				if name == "config.json" {
					head.Set("ETag", `"0123456789012345678901234567890123456789"`)
				}
			}
		}},
		"longer than announced": {spec: "org/tiny", leaves: 6, want: []string{"more than the 300000 bytes"}, setup: func(t *testing.T, h fakeHub) {
			h.Serve = func(w http.ResponseWriter, _ *http.Request, name string, data []byte) bool {
				if name != singleFile {
					return false
				}
				w.Write(append(slices.Clone(data), 0))
				return true
			}
		}},
		"always shorter": {spec: "org/tiny", leaves: 6, want: []string{"ended after 0 of 300000 bytes", "kept"}, setup: func(t *testing.T, h fakeHub) {
			h.Serve = func(w http.ResponseWriter, _ *http.Request, name string, data []byte) bool { return name == singleFile }
		}},
		"offline": {spec: "org/tiny", want: []string{"HF_HUB_OFFLINE is set", "lacks this model", "hub"}, setup: func(t *testing.T, h fakeHub) {
			t.Setenv("HF_HUB_OFFLINE", "1")
		}},
		"bad endpoint": {spec: "org/tiny", want: []string{`HF_ENDPOINT: got "hub.local"`}, setup: func(t *testing.T, h fakeHub) {
			t.Setenv("HF_ENDPOINT", "hub.local")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t, wholeModel())
			if c.setup != nil {
				c.setup(t, h)
			}
			m, err := find(t, c.spec)
			if err == nil {
				t.Fatalf("found %+v, want an error", m)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want it to say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "Signature") || strings.Contains(err.Error(), "hf_secret") {
				t.Errorf("error %q tells a secret", err)
			}
			outside := 0
			filepath.WalkDir(os.Getenv("HF_HOME"), func(path string, e fs.DirEntry, err error) error {
				if strings.Contains(filepath.ToSlash(path), "/snapshots/") && e.Type()&fs.ModeSymlink != 0 {
					outside++
				}
				return err
			})
			if outside > c.leaves {
				t.Errorf("%d files in the snapshot, want at most %d", outside, c.leaves)
			}
			if _, err := os.Stat(filepath.Join(h.cacheDir(), "refs", "main")); err == nil {
				t.Error("refs/main was written")
			}
		})
	}
}

// TestAnnouncedSizes: what the readers would refuse is not fetched.
func TestAnnouncedSizes(t *testing.T) {
	for name, size := range map[string]string{
		"model.safetensors": "1000000000000000000",
		"config.json":       "1000000000000", "generation_config.json": "1048577", "tokenizer.json": "1000000000000", indexFile: "1000000000000", "glimpse_policies.json": "1048577",
	} {
		t.Run(name, func(t *testing.T) {
			files := wholeModel()
			if name == indexFile {
				files = shardedModel()
			}
			files["glimpse_policies.json"] = []byte("{}")
			h := newFakeHub(t, files)
			h.Alter = func(asked string, header http.Header) {
				if asked == name {
					header.Set("X-Linked-Size", size)
				}
			}
			_, err := find(t, "org/tiny")
			want := name + ": the hub announces " + size + " bytes, want at most "
			if name == singleFile { // of any size that the disk has room for
				want = "not enough room: "
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
			if n := h.Count("GET hub /org/tiny/resolve/" + commitA + "/" + name); n != 0 {
				t.Errorf("fetched %d times", n)
			}
		})
	}
}

// TestManyLostShards: the names come from the hub, in any number.
func TestManyLostShards(t *testing.T) {
	files := shardedModel()
	var index strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&index, `, "t%d": "%s%04d.safetensors"`, i, strings.Repeat("x", 200), i)
	}
	files[indexFile] = []byte(`{"weight_map": {` + index.String()[1:] + "}}")
	newFakeHub(t, files)
	_, err := find(t, "org/tiny")
	if err == nil || !strings.Contains(err.Error(), "names files that the hub does not have") || !strings.Contains(err.Error(), "and 8980 more") || len(err.Error()) > 10_000 {
		t.Errorf("error of %d bytes: %.300s", len(fmt.Sprint(err)), err)
	}
	// The same of a cache that has lost them.
	f := finding{commit: commitA}
	for i := range 9000 {
		f.missing = append(f.missing, fmt.Sprintf("%s%04d.safetensors", strings.Repeat("x", 200), i))
	}
	if lack := f.lack(); !strings.HasSuffix(lack, " and 8980 more of commit "+commitA) || len(lack) > 10_000 {
		t.Errorf("%d bytes: %.300s", len(lack), lack)
	}
}
