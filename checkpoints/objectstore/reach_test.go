package objectstore_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"glimpse/checkpoints/objectstore"
)

// TestUnreachable: a server that is down is said within ten seconds, in one line with its address
// and without the SDK's request ids; one that has answered before is tried to the end.
func TestUnreachable(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + listener.Addr().String()
	listener.Close() // nothing listens there now
	store, key, err := objectstore.Open(context.Background(), "s3://test/a", objectstore.Settings{Endpoint: address, Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	_, err = store.Stat(context.Background(), key)
	if err == nil {
		t.Fatal("no server: want an error")
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v, want at most 10 s", took)
	}
	text := err.Error()
	for _, want := range []string{"s3://test/a", address, "connection refused", "--s3-endpoint"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
	for _, not := range []string{"\n", "RequestID", "StatusCode", "operation error"} {
		if strings.Contains(text, not) {
			t.Errorf("%q has %q", text, not)
		}
	}
}

// TestNoCredentials: the error says what to set.
func TestNoCredentials(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true") // no role of a machine
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	store, key, err := objectstore.Open(context.Background(), "s3://test/a", objectstore.Settings{Endpoint: "http://127.0.0.1:9", Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.Stat(context.Background(), key)
	if !errors.Is(err, objectstore.ErrDenied) || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") || strings.Contains(err.Error(), "operation error") {
		t.Errorf("got %v, want what to set", err)
	}
}
