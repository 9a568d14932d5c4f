package modelfile

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

func TestReadJSON(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		mode fs.FileMode
		want string // the content, or with "error: " a part of the error
	}{
		"plain":         {data: `{"a": 1}`, want: `{"a": 1}`},
		"byte order":    {data: "\xef\xbb\xbf{}", want: "{}"},
		"at the limit":  {data: strings.Repeat(" ", 64), want: strings.Repeat(" ", 64)},
		"over it":       {data: strings.Repeat(" ", 65), want: "error: f.json: 65 bytes, want at most 64"},
		"LFS":           {data: "version https://git-lfs.github.com/spec/v1\noid", want: "error: f.json: a Git LFS pointer"},
		"HTML":          {data: "\n <!DOCTYPE HTML><p>", want: "error: f.json: an HTML page"},
		"HTML, marked":  {data: "\xef\xbb\xbf<html lang=en>", want: "error: f.json: an HTML page"},
		"XML":           {data: `<?xml version="1.0"?><Error>`, want: "error: f.json: an XML page"},
		"FIFO":          {mode: fs.ModeNamedPipe, want: "error: f.json: a FIFO, want a regular file"},
		"device":        {mode: fs.ModeDevice | fs.ModeCharDevice, want: "error: f.json: a device"},
		"socket":        {mode: fs.ModeSocket, want: "error: f.json: a socket"},
		"folder":        {mode: fs.ModeDir, want: "error: f.json: a folder"},
		"HTML inside":   {data: `"<html"`, want: `"<html"`},
		"LFS elsewhere": {data: `"version https://git-lfs.github.com/spec/"`, want: `"version https://git-lfs.github.com/spec/"`},
	} {
		got, err := ReadJSON(fstest.MapFS{"f.json": {Data: []byte(c.data), Mode: c.mode | 0o644}}, "f.json", 64)
		if part, ok := strings.CutPrefix(c.want, "error: "); ok {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %v, want %q", name, err, part)
			}
		} else if err != nil || string(got) != c.want {
			t.Errorf("%s: %q (%v), want %q", name, got, err, c.want)
		}
	}
}
