package objectstore_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
)

// at opens a store at an address, with credentials that have a session token.
func at(t *testing.T, url string) objectstore.Store {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "k")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hidden-secret")
	t.Setenv("AWS_SESSION_TOKEN", "hidden-token")
	store, _, err := objectstore.Open(t.Context(), "s3://bucket/x", objectstore.ForTests(objectstore.Settings{Endpoint: url}, storetest.PartBytes, time.Millisecond, 3))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// TestRedirects: contents and credentials go to no server but the one that was named.
func TestRedirects(t *testing.T) {
	var elsewhere, asked atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	for _, code := range []int{301, 302, 303, 307, 308} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Location", other.URL+r.URL.Path)
			w.WriteHeader(code)
		}))
		store := at(t, s.URL)
		for name, op := range map[string]func() error{
			"put": func() error {
				return store.Put(t.Context(), "x", bytes.NewReader([]byte("x")), objectstore.PutOptions{})
			},
			"stat": func() error { _, err := store.Stat(t.Context(), "x"); return err },
			"list": func() error { _, err := store.List(t.Context(), "x"); return err },
		} {
			asked.Store(0)
			if err := op(); err == nil || !strings.Contains(err.Error(), fmt.Sprint(code)) || !strings.Contains(err.Error(), "redirects to "+other.URL) || !strings.Contains(err.Error(), "--s3-endpoint") {
				t.Errorf("%d, %s: error %v, want where it points", code, name, err)
			}
			if n := asked.Load(); n > 2 { // a stat asks for the bucket, too
				t.Errorf("%d, %s: asked %d times", code, name, n)
			}
		}
		s.Close()
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("another server got %d requests", n)
	}
	// Within the server it is followed.
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/moved") {
			http.Redirect(w, r, "/moved"+r.URL.Path, http.StatusTemporaryRedirect)
			return
		}
		w.Header().Set("Content-Length", "7")
	}))
	defer s.Close()
	if info, err := at(t, s.URL).Stat(t.Context(), "x"); err != nil || info.Size != 7 {
		t.Errorf("%+v, error %v", info, err)
	}
}

// TestSecretsAreMasked: a server may repeat what it got.
func TestSecretsAreMasked(t *testing.T) {
	for _, status := range []int{400, 403, 404, 500} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			fmt.Fprintf(w, "<Error><Code>Wrong</Code><Message>%s and hidden-secret</Message></Error>", r.Header.Get("X-Amz-Security-Token"))
		}))
		if _, err := at(t, s.URL).List(t.Context(), "x"); err == nil || strings.Contains(err.Error(), "hidden") || !strings.Contains(err.Error(), "[key] and [key]") {
			t.Errorf("%d: error %v, want it masked", status, err)
		}
		s.Close()
	}
}
