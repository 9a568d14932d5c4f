package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"glimpse/internal/patience"
	"glimpse/internal/secret"
)

const (
	attempts     = 5 // without a byte gained in between
	firstPause   = time.Second
	longestPause = time.Minute
	maxRedirects = 10
	maxJSON      = 32 << 20 // bytes of an answer of the API
)

// client speaks HTTP with the hub.
type client struct {
	endpoint *url.URL
	token    string
	http     *patience.Client
	// metadata stops at the answer that describes the file, before the redirect to
	// the storage.
	metadata *patience.Client

	tell  func(text string) // what is waited for
	pause time.Duration     // before the second attempt; doubled before each further one
}

// newClient tells log what it waits for.
func newClient(s settings, log io.Writer) *client {
	c := &client{endpoint: s.endpoint, token: s.token, pause: firstPause}
	transport := http.DefaultTransport.(*http.Transport).Clone() // with the proxies of the environment
	transport.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	transport.ResponseHeaderTimeout = patience.Silence
	transport.DisableCompression = true // sizes and ranges are the file's
	c.tell = func(text string) { fmt.Fprintln(log, "hub: "+text) }
	c.http = &patience.Client{Tell: c.tell, Doer: &http.Client{Transport: transport, CheckRedirect: c.redirect}}
	c.metadata = &patience.Client{Tell: c.tell, Doer: &http.Client{Transport: transport, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if req.Response.Header.Get(linkedETag) != "" {
			return http.ErrUseLastResponse
		}
		return c.redirect(req, via)
	}}}
	return c
}

// redirect keeps the token from every server but the hub. The standard library
// would send it to other ports and to the hub's subdomains as well.
func (c *client) redirect(req *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return permanent{fmt.Errorf("more than %d redirects", maxRedirects)}
	}
	if c.endpoint.Scheme == "https" && req.URL.Scheme != "https" {
		return permanent{fmt.Errorf("a redirect to %s://%s, want https as the hub has", req.URL.Scheme, req.URL.Host)}
	}
	if !c.isHub(req.URL) {
		req.Header.Del("Authorization")
	}
	return nil
}

func (c *client) isHub(u *url.URL) bool { return secret.SameServer(u, c.endpoint) }

// permanent is an error that another attempt would give again.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// unreachable is a request without an answer.
type unreachable struct{ error }

func (u unreachable) Unwrap() error { return u.error }

// statusError is an answer with a status of 400 or more.
type statusError struct {
	status        int
	code, message string // as the hub names and explains it, or ""
	after         time.Duration
	fromHub       bool
}

func (e *statusError) Error() string {
	host := "the hub"
	if !e.fromHub {
		host = "the storage host"
	}
	text := fmt.Sprintf("%s answered %d %s", host, e.status, http.StatusText(e.status))
	if e.message != "" {
		text += ": " + e.message
	}
	return text
}

// passing tells that a later attempt may get another answer. The storage's links
// are signed for a while, so its refusals end with a fresh link.
func (e *statusError) passing() bool {
	return e.status == http.StatusRequestTimeout || e.status == http.StatusTooManyRequests || e.status >= 500 || !e.fromHub
}

// sendRequest makes one request and one attempt; path is below the endpoint, its parts
// escaped. The caller closes the body.
func (c *client) sendRequest(ctx context.Context, method, path, byteRange string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.endpoint.String()+path, nil)
	if err != nil {
		return nil, permanent{err}
	}
	req.Header.Set("User-Agent", "glimpse")
	req.Header.Set("Accept-Encoding", "identity")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if byteRange != "" {
		req.Header.Set("Range", byteRange)
	}
	client := c.http
	if method == http.MethodHead {
		client = c.metadata
	}
	resp, err := client.Do(req)
	if err != nil {
		// Without the address, which for a storage host is a page long and signed.
		if at := (*url.Error)(nil); errors.As(err, &at) {
			host := c.endpoint.Host
			if u, parseErr := url.Parse(at.URL); parseErr == nil {
				host = u.Host
			}
			return nil, unreachable{fmt.Errorf("%s: %w", host, at.Err)}
		}
		return nil, err
	}
	if resp.StatusCode < 400 {
		return resp, nil
	}
	defer resp.Body.Close()
	e := &statusError{
		status: resp.StatusCode, fromHub: c.isHub(resp.Request.URL),
		code: resp.Header.Get("X-Error-Code"), message: short(secret.Mask(resp.Header.Get("X-Error-Message"), c.token)),
	}
	e.after = patience.After(resp.Header, longestPause)
	return nil, e
}

// short shortens what a server says to what a terminal should show.
func short(s string) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s))
	return string(runes[:min(len(runes), 300)])
}

// retry repeats op until it succeeds, fails for good, or has failed tries times in
// a row without progress. Its errors do not have the token.
func (c *client) retry(ctx context.Context, tries int, op func() (progress bool, err error)) error {
	for failed := 1; ; failed++ {
		progress, err := op()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var status *statusError
		var dns *net.DNSError
		if errors.As(err, new(permanent)) || errors.As(err, &status) && !status.passing() ||
			errors.As(err, &dns) && dns.IsNotFound || patience.Hopeless(err) {
			return secret.MaskError(err, c.token)
		}
		if progress {
			failed = 1
		} else if failed >= tries {
			return secret.MaskError(err, c.token)
		}
		pause := min(c.pause<<(failed-1), longestPause)
		if status != nil {
			pause = max(pause, status.after)
		}
		if pause >= patience.Notice {
			c.tell(secret.Mask(fmt.Sprintf("%v; attempt %d of %d in %v", err, failed+1, tries, pause), c.token))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// repoInfo is the hub's description of a model at a revision.
type repoInfo struct {
	SHA      string `json:"sha"`
	Siblings []struct {
		Name string `json:"rfilename"`
	} `json:"siblings"`
}

// info asks the hub for the commit and the files of the revision.
func (f *fetcher) info(ctx context.Context, revision string, tries int) (repoInfo, error) {
	var info repoInfo
	path := "/api/models/" + f.repo.id + "/revision/" + url.PathEscape(revision)
	err := f.client.retry(ctx, tries, func() (bool, error) {
		resp, err := f.client.sendRequest(ctx, http.MethodGet, path, "")
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(io.LimitReader(resp.Body, maxJSON+1))
		if err != nil {
			return false, err
		}
		if len(raw) > maxJSON {
			return false, permanent{fmt.Errorf("the hub's answer is longer than %d bytes", maxJSON)}
		}
		if err := json.Unmarshal(raw, &info); err != nil {
			return false, permanent{fmt.Errorf("%s does not answer as a hub does: %w", f.endpoint.Redacted(), err)}
		}
		return false, nil
	})
	if err != nil {
		return repoInfo{}, f.explain(err)
	}
	if !commitHash.MatchString(info.SHA) || commitHash.MatchString(revision) && info.SHA != revision {
		return repoInfo{}, fmt.Errorf("%s does not answer as a hub does: commit %.60q of revision %s, want 40 hexadecimal digits", f.endpoint.Redacted(), secret.Mask(info.SHA, f.token), revision)
	}
	return info, nil
}

// explain says what to do about a refusal.
func (f *fetcher) explain(err error) error {
	var status *statusError
	if !errors.As(err, &status) {
		if errors.As(err, new(unreachable)) && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("no answer from %w; what has arrived is kept, the next run goes on from there", err)
		}
		return err
	}
	if !status.fromHub {
		return err
	}
	page := f.endpoint.Redacted() + "/" + f.repo.id
	login := "set HF_TOKEN to a token of an account that may read it (" + f.endpoint.Redacted() + "/settings/tokens)"
	switch {
	case status.code == "GatedRepo" || status.status == http.StatusForbidden && status.code == "" && f.token == "":
		if f.token == "" {
			return fmt.Errorf("the model is gated: ask for access at %s, then %s: %w", page, login, err)
		}
		return fmt.Errorf("the model is gated: the token of %s has no access yet; ask for it at %s: %w", f.source, page, err)
	case status.status == http.StatusUnauthorized && f.token == "":
		return fmt.Errorf("no such folder, and at the hub it does not exist or is private; check the name, or %s: %w", login, err)
	case status.status == http.StatusUnauthorized:
		return fmt.Errorf("the hub does not know the model, or does not accept the token of %s: %w", f.source, err)
	case status.status == http.StatusForbidden:
		return fmt.Errorf("the token of %s may not read the model: %w", f.source, err)
	case status.code == "RevisionNotFound":
		return fmt.Errorf("the model has no revision %q; see %s/tree/main for its branches and tags: %w", f.repo.revision, page, err)
	case status.status == http.StatusNotFound && status.code != "EntryNotFound":
		return fmt.Errorf("no such folder, and no such model at %s: %w", f.endpoint.Redacted(), err)
	case status.status == http.StatusTooManyRequests && f.token == "":
		return fmt.Errorf("too many requests without a login; wait, or set HF_TOKEN: %w", err)
	}
	return err
}
