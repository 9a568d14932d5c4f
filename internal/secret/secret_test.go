package secret

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"testing"
)

func TestSameServer(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"https://host/v1", "https://HOST:443/other?x=1", true},
		{"http://host", "HTTP://host:80", true},
		{"http://[::1]:8000", "http://[::1]:8000/x", true},
		{"https://host", "http://host", false},
		{"http://host:443", "https://host:443", false},
		{"http://host:8000", "http://host:8001", false},
		{"https://host", "https://sub.host", false},
		{"https://host", "https://host.evil", false},
		{"https://host", "https://host@evil", false},
	} {
		a, errA := url.Parse(c.a)
		b, errB := url.Parse(c.b)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if SameServer(a, b) != c.same || SameServer(b, a) != c.same {
			t.Errorf("%s and %s: want same %v", c.a, c.b, c.same)
		}
	}
}

func TestMask(t *testing.T) {
	for text, want := range map[string]string{
		"a sk/1+2345 b sk/1+2345":     "a [key] b [key]",
		"?k=sk%2F1%2B2345&t=two-keys": "?k=[key]&t=[key]",
		`{"k": "sk\/1+2345"}`:         `{"k": "[key]"}`,
		"/sk%2F1+2345/":               "/[key]/",
		"nothing of the kinds":        "nothing of the kinds",
		"k, a key of one byte":        "k, a key of one byte",
	} {
		if got := Mask(text, "sk/1+2345", "", "k", "two-keys"); got != want {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
	err := MaskError(fmt.Errorf("with sk-key-key: %w", fs.ErrExist), "sk-key-key")
	if err.Error() != "with [key]: file already exists" || !errors.Is(err, fs.ErrExist) || MaskError(nil, "sk-key-key") != nil {
		t.Errorf("error %v", err)
	}
}
