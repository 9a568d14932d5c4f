package hub

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/model/hub/hubtest"
)

// TestOffline: the error names what is missing, and what is there.
func TestOffline(t *testing.T) {
	for name, c := range map[string]struct {
		remove string // below the model's folder of the cache
		spec   string
		want   string // "" for success
	}{
		"whole":             {spec: "org/tiny"},
		"by commit":         {spec: "org/tiny@" + commitA},
		"other revision":    {spec: "org/tiny@v2", want: "lacks this revision; it holds main"},
		"other commit":      {spec: "org/tiny@" + commitB, want: "lacks this revision; it holds main"},
		"no ref":            {spec: "org/tiny", remove: "refs/main", want: "it holds " + commitA},
		"no shard":          {spec: "org/tiny", remove: "snapshots/" + commitA + "/model-00002-of-00002.safetensors", want: "lacks model-00002-of-00002.safetensors of commit"},
		"dangling link":     {spec: "org/tiny", remove: "blobs/" + hubtest.ETag("config.json", wholeModel()["config.json"]), want: "lacks config.json of commit"},
		"no weights":        {spec: "org/tiny", remove: "snapshots/" + commitA + "/" + indexFile, want: "lacks model.safetensors of commit"},
		"no tokenizer":      {spec: "org/tiny", remove: "snapshots/" + commitA + "/tokenizer.json"},
		"optional file":     {spec: "org/tiny", remove: "snapshots/" + commitA + "/chat_template.jinja"},
		"revision of a dir": {spec: "org/tiny@main/x", want: "lacks this revision"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t, shardedModel())
			h.mustFind("org/tiny", commitA)
			asked := len(h.Requests)
			if c.remove != "" {
				if err := os.Remove(filepath.Join(h.cacheDir(), filepath.FromSlash(c.remove))); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("HF_HUB_OFFLINE", "1")
			_, err := find(t, c.spec)
			if c.want == "" && err != nil {
				t.Error(err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "HF_HUB_OFFLINE")) {
				t.Errorf("error %v, want it to say %q", err, c.want)
			}
			if len(h.Requests) != asked {
				t.Errorf("asked the hub: %v", h.Requests[asked:])
			}
			t.Setenv("HF_HUB_OFFLINE", "0")
			if c.want != "" && !strings.Contains(c.spec, "@") {
				h.mustFind(c.spec, commitA) // mended
			}
		})
	}
}

// TestUnknownFiles: where the cache does not say whether the hub has an optional
// file, it is asked once; without an answer the cache is used as it is.
func TestUnknownFiles(t *testing.T) {
	files := wholeModel()
	delete(files, "generation_config.json")
	h := newFakeHub(t, files)
	h.mustFind("org/tiny", commitA)
	asked := len(h.Requests)
	h.mustFind("org/tiny", commitA)
	if len(h.Requests) != asked {
		t.Fatalf("asked for a file that the hub does not have: %v", h.Requests[asked:])
	}
	// As another program would have left it, without the markers.
	if err := os.RemoveAll(filepath.Join(h.cacheDir(), ".no_exist")); err != nil {
		t.Fatal(err)
	}
	h.mustFind("org/tiny", commitA)
	h.mustFind("org/tiny", commitA)
	if len(h.Requests) != asked+1 {
		t.Errorf("requests %v, want one", h.Requests[asked:])
	}
	os.Remove(filepath.Join(h.cacheDir(), "snapshots", commitA, "tokenizer.json"))
	h.mustFind("org/tiny", commitA)
	os.RemoveAll(filepath.Join(h.cacheDir(), ".no_exist"))
	h.Hub.Close()
	h.mustFind("org/tiny", commitA)
}

// TestPlaces: where the cache is.
func TestPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"default":      {map[string]string{}, "$HOME/.cache/huggingface/hub"},
		"XDG":          {map[string]string{"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"},
		"HF_HOME":      {map[string]string{"XDG_CACHE_HOME": "/x", "HF_HOME": "/h"}, "/h/hub"},
		"HF_HUB_CACHE": {map[string]string{"HF_HOME": "/h", "HF_HUB_CACHE": "/c", "HUGGINGFACE_HUB_CACHE": "/old"}, "/c"},
		"old name":     {map[string]string{"HF_HOME": "/h", "HUGGINGFACE_HUB_CACHE": "/old"}, "/old"},
		"expanded":     {map[string]string{"HF_HUB_CACHE": "~/$USER/c"}, "$HOME/me/c"},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			for _, name := range []string{"XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_ENDPOINT"} {
				t.Setenv(name, c.env[name])
			}
			t.Setenv("HOME", home)
			t.Setenv("USER", "me")
			s, err := readSettings()
			if want := strings.Replace(c.want, "$HOME", home, 1); err != nil || filepath.ToSlash(s.cache) != want {
				t.Errorf("cache %s (%v), want %s", s.cache, err, want)
			}
			if s.endpoint.String() != "https://huggingface.co" {
				t.Errorf("endpoint %s", s.endpoint)
			}
		})
	}
}

// TestSpecs: what is a folder, what a model of the hub, and what neither.
func TestSpecs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	if err := os.MkdirAll("org/here", 0o755); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 97)
	for spec, want := range map[string]string{ // a folder, or =repository, or an error
		"":                                     "",
		".":                                    ".",
		"org/here":                             "org/here",
		"./nowhere":                            "./nowhere",
		"../x":                                 "../x",
		"/abs/x":                               "/abs/x",
		"~/x":                                  dir + "/x",
		"org/name":                             "=org/name@main",
		"org/name@v1.0":                        "=org/name@v1.0",
		"Org-1/n_a.m-e@a/b":                    "=Org-1/n_a.m-e@a/b",
		"org/name@" + commitA:                  "=org/name@" + commitA,
		"nowhere":                              "no such folder",
		"path/to/model":                        "no such folder",
		"org/../name":                          "no such folder",
		"org/name.git":                         "no such folder",
		"org/a--b":                             "no such folder",
		"-org/name":                            "no such folder",
		"org/" + long:                          "no such folder",
		"org/na me":                            "no such folder",
		"org/name@":                            "revision",
		"org/name@../../x":                     "revision",
		"org/name@/etc/passwd":                 "revision",
		"org/name@a//b":                        "revision",
		"org/name@.git":                        "revision",
		"org/name@a/../b":                      "revision",
		"org/name@a\nb":                        "revision",
		`org/name@a\b`:                         "revision",
		"org/name@" + strings.Repeat("x", 300): "revision",
	} {
		t.Run(spec, func(t *testing.T) {
			if repo, ok := strings.CutPrefix(want, "="); ok {
				if got, err := parseRepo(spec); err != nil || isFolder(spec) || got.String() != repo {
					t.Errorf("%v (%v), want %s", got, err, repo)
				}
				return
			}
			m, err := Resolve(t.Context(), spec, nil)
			if err != nil {
				if !strings.Contains(err.Error(), want) || want == "" {
					t.Errorf("error %v, want %q", err, want)
				}
			} else if m.Path != want || m.Name != "" {
				t.Errorf("found %+v, want folder %q", m, want)
			}
		})
	}
}

// TestProgress: what is shown when a model is fetched.
func TestProgress(t *testing.T) {
	newFakeHub(t, wholeModel())
	var log bytes.Buffer
	if _, err := Resolve(t.Context(), "org/tiny", &log); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"fetching 7 files of org/tiny@main, 300 kB, into ", "300 kB/300 kB  100%"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log %q, want %q", log.String(), want)
		}
	}
}
