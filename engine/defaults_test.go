package engine

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// TestPolicyDefaultsAreBounded: the file comes with a model, from anywhere.
func TestPolicyDefaultsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		file fstest.MapFile
		want string
	}{
		"huge":    {fstest.MapFile{Data: make([]byte, 1<<20+1)}, "1048577 bytes, want at most 1048576"},
		"FIFO":    {fstest.MapFile{Mode: fs.ModeNamedPipe}, "a FIFO, want a regular file"},
		"pointer": {fstest.MapFile{Data: []byte("version https://git-lfs.github.com/spec/v1\n")}, "a Git LFS pointer"},
	} {
		if _, err := readDefaults(fstest.MapFS{policyDefaults: &c.file}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	got, err := readDefaults(fstest.MapFS{policyDefaults: {Data: []byte("\xef\xbb\xbf" + `{"snapkv": {"window": 8}}`)}})
	if err != nil || got["snapkv"]["window"] != 8 {
		t.Errorf("with a byte order mark: %v, %v", got, err)
	}
}

// TestNothingToEvictIsTold: of a model that holds nothing but windows the log says so, and of no other.
func TestNothingToEvictIsTold(t *testing.T) {
	for name, told := range map[string]bool{"mistral-window": true, "gemma3": false, "llama3.1": false} {
		var log strings.Builder
		m, err := Open(t.Context(), &Options{Model: "../model/testdata/golden/" + name, Device: "cpu"}, &log)
		if err != nil {
			t.Fatal(err)
		}
		m.Close()
		if got := strings.Contains(log.String(), "every layer of the model has a sliding window"); got != told {
			t.Errorf("%s: told %q, want it said: %v", name, log.String(), told)
		}
	}
}
