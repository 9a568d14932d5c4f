package objectstore_test

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
)

// TestNothingToVerifyBy: a server that tells neither checksum nor ETag is believed once, by each
// command anew, and over plain HTTP a person is told.
func TestNothingToVerifyBy(t *testing.T) {
	for name, c := range map[string]struct {
		header http.Header
		secure bool
		told   int
		again  bool // fetched by the second command
	}{
		"nothing":            {told: 1, again: true},
		"nothing over https": {secure: true, again: true},
		"an ETag":            {header: http.Header{"ETag": {`"1"`}}},
		"a checksum":         {header: http.Header{"X-Amz-Checksum-Crc32": {objectstore.Base64Checksum("CRC32", []byte("content 0"))}}, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			var reads atomic.Int64
			content := "content 0"
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for k, v := range c.header {
					w.Header()[k] = v
				}
				if r.Method == http.MethodGet {
					reads.Add(1)
					w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(content)-1, len(content)))
				}
				w.Header().Set("Content-Length", fmt.Sprint(len(content)))
				if r.Method == http.MethodGet {
					w.WriteHeader(http.StatusPartialContent)
					fmt.Fprint(w, content)
				}
			}))
			if c.secure {
				s.StartTLS()
				bundle := t.TempDir() + "/ca.pem"
				if err := os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
					t.Fatal(err)
				}
				t.Setenv("AWS_CA_BUNDLE", bundle)
			} else {
				s.Start()
			}
			defer s.Close()
			t.Setenv("AWS_ACCESS_KEY_ID", "k")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
			var told []string
			settings := objectstore.ForTests(objectstore.Settings{Endpoint: s.URL}, storetest.PartBytes, time.Millisecond, 2)
			settings.Notice = func(text string) { told = append(told, text) }
			cache := objectstore.Cache{Dir: t.TempDir()}
			for command := range 2 {
				store, key, err := objectstore.Open(t.Context(), "s3://bucket/x", settings)
				if err != nil {
					t.Fatal(err)
				}
				path, err := cache.File(t.Context(), store, key)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(path); string(got) != content {
					t.Errorf("command %d: got %q, error %v, want %q", command, got, err, content)
				}
				if c.header == nil {
					content = "content 1" // of the same size
				}
			}
			if n, want := reads.Load(), map[bool]int64{false: 1, true: 2}[c.again]; n != want {
				t.Errorf("read %d times, want %d", n, want)
			}
			if len(told) != c.told || c.told > 0 && !strings.Contains(told[0], "neither a checksum nor an ETag") {
				t.Errorf("told %q, want %d", told, c.told)
			}
		})
	}
}

// TestNoSize: an answer without a size is none of an object that is empty.
func TestNoSize(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Transfer-Encoding", "chunked")
	}))
	defer s.Close()
	if info, err := at(t, s.URL).Stat(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "size") {
		t.Errorf("%+v, error %v", info, err)
	}
}
