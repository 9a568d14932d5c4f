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
