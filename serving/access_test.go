package serving_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"glimpse/serving"
)

const chatBody = `{"messages":[{"role":"user","content":"never"}],"max_tokens":1}`

// headers are those of a request as NAME, VALUE, NAME, VALUE; Host is its own.
func (s *served) request(t testing.TB, method, path, body string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Body.Close() })
	return a
}

// code is the status of an answer, and the code of its error.
func code(t testing.TB, r *http.Response) string {
	t.Helper()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	var told struct {
		Error struct{ Code string } `json:"error"`
	}
	json.Unmarshal(raw, &told) // pages are none
	return strings.TrimSpace(fmt.Sprint(r.StatusCode, " ", told.Error.Code))
}

// TestWebPages: a web page of another site cannot use a server without keys, by whatever name or type; programs and its own page can. With
// keys the key alone decides.
func TestWebPages(t *testing.T) {
	open := serve(t, nil)
	named := serve(t, func(c *serving.Config) {
		c.AllowedHosts, c.CORSOrigins = []string{"glimpse.example", "::2"}, []string{"https://chat.example:8443"}
	})
	anyName := serve(t, func(c *serving.Config) { c.AllowedHosts = []string{"*"} })
	keyed := serve(t, func(c *serving.Config) { c.Keys = []string{"one"} })
	port := open.url[strings.LastIndex(open.url, ":"):]
	const jsonType = "application/json"
	for _, c := range []struct {
		name, method, path string
		headers            []string
		want               string
		server             *served
	}{
		{"the case", "POST", "/v1/adapters", []string{"Host", "evil.example", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain"}, "403 host_not_allowed", open},
		{"a program", "POST", "/v1/chat/completions", []string{"Content-Type", jsonType}, "200", open},
		{"a character set", "POST", "/v1/chat/completions", []string{"Content-Type", "Application/JSON; charset=utf-8"}, "200", open},
		// Names.
		{"rebound name", "POST", "/v1/chat/completions", []string{"Content-Type", jsonType, "Host", "evil.example" + port, "Origin", "http://evil.example" + port, "Sec-Fetch-Site", "same-origin"}, "403 host_not_allowed", open},
		{"rebound name, read", "GET", "/v1/models", []string{"Host", "evil.example" + port}, "403 host_not_allowed", open},
		{"rebound name, the page", "GET", "/", []string{"Host", "evil.example" + port}, "403 host_not_allowed", open},
		{"rebound name, metrics", "GET", "/metrics", []string{"Host", "evil.example"}, "403 host_not_allowed", open},
		{"rebound name, delete", "DELETE", "/v1/adapters/x", []string{"Host", "evil.example"}, "403 host_not_allowed", open},
		{"rebound name, nothing there", "GET", "/none", []string{"Host", "evil.example"}, "403 host_not_allowed", open},
		{"an administrator", "DELETE", "/v1/adapters/x", nil, "404 adapter_not_found", open},
		{"whom a proxy here speaks for", "DELETE", "/v1/adapters/x", []string{"X-Forwarded-For", "192.0.2.1"}, "403 not_administrator", open},
		{"whom a proxy here speaks for, by its standard", "POST", "/v1/adapters", []string{"Forwarded", "for=192.0.2.1", "Content-Type", jsonType}, "403 not_administrator", open},
		{"a user whom a proxy speaks for", "GET", "/v1/models", []string{"X-Forwarded-For", "192.0.2.1"}, "200", open},
		{"health by any name", "GET", "/health", []string{"Host", "evil.example"}, "200", open},
		{"a name that only begins well", "GET", "/v1/models", []string{"Host", "localhost.evil.example"}, "403 host_not_allowed", open},
		{"an address in a name", "GET", "/v1/models", []string{"Host", "127.0.0.1.evil.example"}, "403 host_not_allowed", open},
		{"an address of another machine", "GET", "/v1/models", []string{"Host", "192.0.2.1"}, "403 host_not_allowed", open},
		{"any address", "GET", "/v1/models", []string{"Host", "0.0.0.0" + port}, "403 host_not_allowed", open},
		{"localhost", "GET", "/v1/models", []string{"Host", "LocalHost" + port}, "200", open},
		{"localhost, rooted", "GET", "/v1/models", []string{"Host", "localhost."}, "200", open},
		{"below localhost", "GET", "/v1/models", []string{"Host", "llm.localhost" + port}, "200", open},
		{"loopback of IPv6", "GET", "/v1/models", []string{"Host", "[::1]" + port}, "200", open},
		{"loopback of IPv6 without port", "GET", "/v1/models", []string{"Host", "[::1]"}, "200", open},
		{"another loopback", "GET", "/v1/models", []string{"Host", "127.8.9.1"}, "200", open},
		{"an allowed name", "GET", "/v1/models", []string{"Host", "Glimpse.example:9"}, "200", named},
		{"an allowed address", "GET", "/v1/models", []string{"Host", "[::2]:9"}, "200", named},
		{"beside allowed names", "GET", "/v1/models", []string{"Host", "evil.glimpse.example"}, "403 host_not_allowed", named},
		{"any name is allowed", "GET", "/v1/models", []string{"Host", "evil.example"}, "200", anyName},
		{"any name is allowed, another site", "POST", "/v1/chat/completions", []string{"Content-Type", jsonType, "Host", "a.example", "Origin", "http://b.example"}, "403 cross_site", anyName},
		// Sites.
		{"cross-site", "POST", "/v1/chat/completions", []string{"Content-Type", jsonType, "Sec-Fetch-Site", "cross-site"}, "403 cross_site", open},
		{"same site, another origin", "POST", "/v1/chat/completions", []string{"Content-Type", jsonType, "Sec-Fetch-Site", "same-site"}, "403 cross_site", open},
		{"a browser without Sec-Fetch-Site", "POST", "/v1/chat/completions", []string{"Content-Type", jsonType, "Origin", "https://evil.example"}, "403 cross_site", open},
		{"a sandboxed page", "POST", "/v1/chat/completions", []string{"Content-Type", jsonType, "Origin", "null"}, "403 cross_site", open},
		{"another port of this machine", "POST", "/v1/chat/completions", []string{"Content-Type", jsonType, "Origin", "http://127.0.0.1:1"}, "403 cross_site", open},
		{"a cross-site read", "GET", "/v1/models", []string{"Sec-Fetch-Site", "cross-site"}, "403 cross_site", open},
		{"a cross-site delete", "DELETE", "/v1/adapters/x", []string{"Sec-Fetch-Site", "cross-site"}, "403 cross_site", open},
		{"its own page", "POST", "/v1/chat/completions", []string{"Content-Type", jsonType, "Origin", open.url, "Sec-Fetch-Site", "same-origin"}, "200", open},
		{"its own page, an older browser", "POST", "/v1/chat/completions", []string{"Content-Type", jsonType, "Origin", open.url}, "200", open},
		{"its own page asks", "GET", "/v1/models", []string{"Sec-Fetch-Site", "same-origin"}, "200", open},
		{"an address that was typed", "GET", "/v1/models", []string{"Sec-Fetch-Site", "none"}, "200", open},
		{"a link to the page", "GET", "/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, "200", open},
		{"an allowed origin", "POST", "/v1/chat/completions", []string{"Content-Type", jsonType, "Origin", "https://chat.example:8443", "Sec-Fetch-Site", "cross-site"}, "200", named},
		{"an allowed origin's other port", "POST", "/v1/chat/completions", []string{"Content-Type", jsonType, "Origin", "https://chat.example", "Sec-Fetch-Site", "cross-site"}, "403 cross_site", named},
		{"an allowed origin, rebound", "POST", "/v1/chat/completions", []string{"Content-Type", jsonType, "Host", "evil.example", "Origin", "https://chat.example:8443"}, "403 host_not_allowed", named},
		// Types.
		{"text", "POST", "/v1/chat/completions", []string{"Content-Type", "text/plain"}, "415 unsupported_media_type", open},
		{"a form", "POST", "/v1/chat/completions", []string{"Content-Type", "application/x-www-form-urlencoded"}, "415 unsupported_media_type", open},
		{"a form of parts", "POST", "/tokenize", []string{"Content-Type", "multipart/form-data; boundary=x"}, "415 unsupported_media_type", open},
		{"no type", "POST", "/v1/adapters", nil, "415 unsupported_media_type", open},
		{"JSON in a parameter", "POST", "/v1/chat/completions", []string{"Content-Type", "text/plain; application/json"}, "415 unsupported_media_type", open},
		// Keys.
		{"a key", "POST", "/v1/chat/completions", []string{"Authorization", "Bearer one", "Content-Type", "application/x-www-form-urlencoded", "Host", "evil.example", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, "200", keyed},
		{"no key", "POST", "/v1/chat/completions", []string{"Content-Type", jsonType}, "401 invalid_api_key", keyed},
	} {
		body := ""
		if c.method == "POST" {
			body = chatBody
		}
		if got := code(t, c.server.request(t, c.method, c.path, body, c.headers...)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestPreflight: browsers are told which origins may use the server, before and with every answer, errors among them.
func TestPreflight(t *testing.T) {
	const page = "https://chat.example"
	one := []string{page, "http://localhost:3000"}
	none := serve(t, nil)
	open := serve(t, func(c *serving.Config) { c.CORSOrigins = one })
	keyed := serve(t, func(c *serving.Config) { c.CORSOrigins, c.Keys = one, []string{"one"} })
	all := serve(t, func(c *serving.Config) { c.CORSOrigins, c.Keys = []string{"*"}, []string{"one"} })
	preflight := func(origin, method string) []string {
		return []string{"Origin", origin, "Access-Control-Request-Method", method, "Access-Control-Request-Headers", "authorization,content-type,x-stainless-os",
			"Access-Control-Request-Private-Network", "true", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"}
	}
	for _, c := range []struct {
		name, method, path string
		server             *served
		headers            []string
		status             int
		origin             string // that may read the answer
	}{
		{"asked before", "OPTIONS", "/v1/chat/completions", open, preflight(page, "POST"), 204, page},
		{"asked before, the other", "OPTIONS", "/v1/chat/completions", open, preflight(one[1], "POST"), 204, one[1]},
		{"asked before, with keys", "OPTIONS", "/v1/chat/completions", keyed, preflight(page, "POST"), 204, page},
		{"asked before to unload", "OPTIONS", "/v1/adapters/x", keyed, preflight(page, "DELETE"), 204, page},
		{"asked before, all", "OPTIONS", "/v1/models", all, preflight("https://any.example", "GET"), 204, "*"},
		{"asked before by a stranger", "OPTIONS", "/v1/chat/completions", open, preflight("https://evil.example", "POST"), 204, ""},
		{"asked before for a method", "OPTIONS", "/v1/chat/completions", open, preflight(page, "PUT"), 204, ""},
		{"asked before by another name", "OPTIONS", "/v1/chat/completions", open, append(preflight(page, "POST"), "Host", "evil.example"), 403, ""},
		{"asked", "POST", "/v1/chat/completions", open, []string{"Origin", page, "Sec-Fetch-Site", "cross-site", "Content-Type", "application/json"}, 200, page},
		{"asked by a stranger", "POST", "/v1/chat/completions", open, []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site", "Content-Type", "application/json"}, 403, ""},
		{"asked with a key", "POST", "/v1/chat/completions", keyed, []string{"Origin", page, "Authorization", "Bearer one", "Content-Type", "application/json"}, 200, page},
		{"asked without a key", "POST", "/v1/chat/completions", keyed, []string{"Origin", page, "Content-Type", "application/json"}, 401, page},
		{"asked as text", "POST", "/v1/chat/completions", open, []string{"Origin", page, "Content-Type", "text/plain"}, 415, page},
		{"nothing there", "GET", "/v1/none", all, []string{"Origin", "https://any.example"}, 404, "*"},
		{"no origin is let in", "GET", "/v1/models", none, []string{"Origin", none.url}, 200, ""},
	} {
		body := ""
		if c.method == "POST" {
			body = chatBody
		}
		r := c.server.request(t, c.method, c.path, body, c.headers...)
		h := r.Header
		if r.StatusCode != c.status || h.Get("Access-Control-Allow-Origin") != c.origin {
			t.Errorf("%s: %d, Access-Control-Allow-Origin %q, want %d, %q", c.name, r.StatusCode, h.Get("Access-Control-Allow-Origin"), c.status, c.origin)
		}
		if c.origin != "*" && c.server != none && c.status != 403 && !strings.Contains(h.Get("Vary"), "Origin") {
			t.Errorf("%s: Vary %q, want Origin", c.name, h.Get("Vary"))
		}
		if h.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: credentials are allowed, which the server takes none of", c.name)
		}
		if c.status == 204 && c.origin != "" {
			for name, want := range map[string]string{
				"Access-Control-Allow-Methods": c.headers[3], "Access-Control-Allow-Headers": "authorization", "Access-Control-Allow-Private-Network": "true", "Access-Control-Max-Age": "600",
			} {
				if !strings.Contains(strings.ToLower(h.Get(name)), strings.ToLower(want)) {
					t.Errorf("%s: %s %q, want %s", c.name, name, h.Get(name), want)
				}
			}
		} else if c.origin != "" && !strings.Contains(h.Get("Access-Control-Expose-Headers"), "X-Request-Id") {
			t.Errorf("%s: Access-Control-Expose-Headers %q", c.name, h.Get("Access-Control-Expose-Headers"))
		}
	}
}

// TestAccessIsChecked: what would let every web page in, or nobody, is refused before the server starts.
func TestAccessIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		config serving.Config
		want   string
	}{
		"all origins without keys": {serving.Config{Access: serving.Access{CORSOrigins: []string{"*"}}}, "want keys, too"},
		"all origins with keys":    {serving.Config{Access: serving.Access{CORSOrigins: []string{"*"}, Keys: []string{"one"}}}, ""},
		"an origin with a path":    {serving.Config{Access: serving.Access{CORSOrigins: []string{"https://chat.example/"}}}, "want SCHEME://HOST"},
		"a name as an origin":      {serving.Config{Access: serving.Access{CORSOrigins: []string{"chat.example"}}}, "want SCHEME://HOST"},
		"an origin of a pattern":   {serving.Config{Access: serving.Access{CORSOrigins: []string{"https://*.example"}}}, "want SCHEME://HOST"},
		"a host with a port":       {serving.Config{Access: serving.Access{AllowedHosts: []string{"glimpse:8080"}}}, "without a port"},
		"a host that is a URL":     {serving.Config{Access: serving.Access{AllowedHosts: []string{"http://glimpse"}}}, "without a port"},
		"an address of IPv6":       {serving.Config{Access: serving.Access{AllowedHosts: []string{"fe80::1"}}}, ""},
		"adapters nowhere":         {serving.Config{AdapterDirs: []string{"/nowhere/at/all"}}, "no such file"},
		"adapters in a file":       {serving.Config{AdapterDirs: []string{"access_test.go"}}, "not a directory"},
		"adapters in no bucket":    {serving.Config{AdapterDirs: []string{"s3://"}}, "want s3://BUCKET"},
		"adapters beside a bucket": {serving.Config{AdapterDirs: []string{"s3://bucket/../other"}}, "want s3://BUCKET"},
		"no time for adapters":     {serving.Config{AdapterTimeout: -1}, "want 0 or more"},
		"adapters of a bucket":     {serving.Config{AdapterDirs: []string{"s3://bucket"}}, ""},
	} {
		err := c.config.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}
