// Package secret keeps keys and tokens with the server that they are for, and out of everything that is
// shown.
package secret

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// maxRedirects is that of net/http.
const maxRedirects = 10

// ErrRedirect is of redirects that are not followed.
var ErrRedirect = errors.New("the redirect is not followed")

// SameServer tells that two addresses have the same scheme, host and port (RFC 6454, section 5).
func SameServer(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
}

// Stay is the CheckRedirect of an [http.Client] whose requests are for one server alone: it
// follows a redirect within the server that keeps the method, as 307 and 308 do of all
// methods, and with it the body. Others are ErrRedirect.
func Stay(r *http.Request, via []*http.Request) error {
	// Without the query, which may hold more secrets.
	to := r.URL.Scheme + "://" + r.URL.Host + r.URL.EscapedPath()
	switch first := via[0]; {
	case len(via) >= maxRedirects:
		return fmt.Errorf("%w: it is one of more than %d", ErrRedirect, maxRedirects)
	case !SameServer(first.URL, r.URL):
		return fmt.Errorf("%w: %d redirects to %s, which is another server than %s://%s", ErrRedirect, r.Response.StatusCode, to, first.URL.Scheme, first.URL.Host)
	case first.Method != r.Method:
		return fmt.Errorf("%w: %d redirects to %s, which would not be a %s any more", ErrRedirect, r.Response.StatusCode, to, first.Method)
	}
	return nil
}

// leastSecret is the number of bytes below which a key is none, but a word such as EMPTY that
// servers without keys are given. Texts may have it for other reasons.
const leastSecret = 8

// Mask puts "[key]" in the place of secrets in a text, as they are and as they stand in
// addresses and in JSON. Those of less than 8 bytes are none.
func Mask(text string, secrets ...string) string {
	var pairs []string
	for _, s := range secrets {
		if len(s) < leastSecret {
			continue
		}
		for _, form := range []string{s, url.QueryEscape(s), url.PathEscape(s), strings.ReplaceAll(s, "/", `\/`)} {
			pairs = append(pairs, form, "[key]")
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// MaskError is err with a text that Mask has seen.
func MaskError(err error, secrets ...string) error {
	if err == nil {
		return nil
	}
	if text := Mask(err.Error(), secrets...); text != err.Error() {
		return masked{text, err}
	}
	return err
}

type masked struct {
	text  string
	cause error
}

func (m masked) Error() string { return m.text }
func (m masked) Unwrap() error { return m.cause }
