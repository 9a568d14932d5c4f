package serving

import (
	"crypto/sha256"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/rs/cors"
)

// Access says who may use a server. Without any key everybody may who reaches its address, and the server sees to it that web
// pages of others, which a browser on this machine runs, do not: by the name that they call it by (DNS rebinding), by where
// their requests come from, and by the type of the body that they send.
type Access struct {
	Keys      []string // a request must have one of them, or one of AdminKeys; neither: it need not
	AdminKeys []string // of those who may load and unload adapters, too
	// AllowedHosts are names that a server without keys may be called by beside this machine's; "*" is any.
	AllowedHosts []string
	// CORSOrigins are the origins whose web pages may use the server, as https://chat.example.org; "*" are all, where there are keys.
	CORSOrigins []string
}

// Validate refuses what would let every web page in.
func (a *Access) Validate() error {
	for _, origin := range a.CORSOrigins {
		u, err := url.Parse(origin)
		switch {
		case origin == "*" && a.keyed():
		case origin == "*":
			return fmt.Errorf("CORS origin *: every web page could use the server: want keys, too, or the origins of pages that may")
		case err != nil || u.Scheme == "" || u.Host == "" || strings.Contains(origin, "*") || origin != u.Scheme+"://"+u.Host:
			return fmt.Errorf("CORS origin %q: want SCHEME://HOST or SCHEME://HOST:PORT", origin)
		}
	}
	for _, host := range a.AllowedHosts {
		if host != "*" && (host == "" || strings.ContainsAny(host, ":/* ") && !isIP(host)) {
			return fmt.Errorf("allowed host %q: want a name or an address without a port, or *", host)
		}
	}
	return nil
}

func isIP(host string) bool { _, err := netip.ParseAddr(host); return err == nil }

func (a *Access) keyed() bool { return len(a.Keys)+len(a.AdminKeys) > 0 }

// role is what a key may do.
type role int

const (
	nobody role = iota
	user
	administrator
)

// roles are the keys' roles, by hashes: nobody learns of these by the time that a comparison takes.
func (a *Access) roles() map[[sha256.Size]byte]role {
	all := make(map[[sha256.Size]byte]role)
	for _, key := range a.Keys {
		all[sha256.Sum256([]byte(key))] = user
	}
	for _, key := range a.AdminKeys {
		all[sha256.Sum256([]byte(key))] = administrator
	}
	return all
}

// roleOf is what a request may do. Without keys whoever sits at the machine administers the server, but not who comes through a proxy on it
// that says so.
func (s *Server) roleOf(r *http.Request) role {
	if s.keyed() {
		return s.roles[sha256.Sum256([]byte(keyOf(r)))]
	}
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && from.Addr().Unmap().IsLoopback() && !forwarded(r.Header) {
		return administrator
	}
	return user
}

// forwarded tells that a proxy has sent a request for somebody else.
func forwarded(h http.Header) bool {
	return slices.ContainsFunc([]string{"Forwarded", "Via", "X-Forwarded-For", "X-Real-Ip"}, func(name string) bool { return len(h.Values(name)) > 0 })
}

func (s *Server) administers(r *http.Request) bool { return s.roleOf(r) == administrator }

// guarded asks for a key where there are any.
func (s *Server) guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.roleOf(r) == nobody {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeError(w, r, failure(http.StatusUnauthorized, invalidRequest, "invalid_api_key", "the API key is missing or wrong: want it as Authorization: Bearer KEY or X-Api-Key: KEY"))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// forAdministrators is an endpoint that changes what others use.
func (s *Server) forAdministrators(f func(w http.ResponseWriter, r *http.Request) error) func(w http.ResponseWriter, r *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if s.administers(r) {
			return f(w, r)
		}
		want := "a key of --admin-keys"
		if !s.keyed() {
			want = "a request from the server's own machine, or a key of --admin-keys"
		}
		return failure(http.StatusForbidden, "permission_error", "not_administrator", "%s %.100s: want %s", r.Method, r.URL.Path, want)
	}
}

// keyOf is the API key of a request; "" where it has none.
func keyOf(r *http.Request) string {
	if scheme, key, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") { // RFC 9110, section 11.1
		return strings.TrimSpace(key)
	}
	return r.Header.Get("X-Api-Key")
}

// admitted lets requests through to h that Access admits, and answers the questions that browsers ask before (CORS preflight).
func (s *Server) admitted(h http.Handler) (http.Handler, error) {
	if !s.keyed() {
		sites := http.NewCrossOriginProtection()
		for _, origin := range s.CORSOrigins {
			if err := sites.AddTrustedOrigin(origin); err != nil {
				return nil, fmt.Errorf("CORS origin: %w", err)
			}
		}
		h = s.withoutKeys(sites, h)
	}
	if len(s.CORSOrigins) == 0 {
		return h, nil
	}
	pages := cors.New(cors.Options{
		AllowedOrigins: s.CORSOrigins, AllowedMethods: []string{http.MethodGet, http.MethodPost, http.MethodDelete}, AllowedHeaders: []string{"*"},
		ExposedHeaders: []string{"X-Request-Id", "Request-Id", "Retry-After", "X-Glimpse-Ignored"}, AllowPrivateNetwork: true, MaxAge: corsMaxAge,
	}).Handler(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions && !s.keyed() && !s.calls(r) { // which h would say of any other
			h.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	}), nil
}

// corsMaxAge is how long browsers remember an answer about an origin, in seconds.
const corsMaxAge = 600

// withoutKeys refuses what web pages of other sites send.
func (s *Server) withoutKeys(sites *http.CrossOriginProtection, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/health": // for who watches, by any name
		case !s.calls(r):
			writeError(w, r, failure(http.StatusForbidden, invalidRequest, "host_not_allowed", "Host: got %.200q, want the name of this machine or one of --allowed-hosts: without --keys a web page could call the server by a name of its own", r.Host))
			return
		case r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/page/"): // to be looked at
		case sites.Check(asChange(r)) != nil:
			writeError(w, r, failure(http.StatusForbidden, invalidRequest, "cross_site", "the request comes from a web page of another site: --cors-origin lets those of an origin in"))
			return
		case r.Method == http.MethodPost && !isJSON(r):
			writeError(w, r, failure(http.StatusUnsupportedMediaType, invalidRequest, "unsupported_media_type", "Content-Type: got %.100q, want application/json, which web pages of other sites cannot send", r.Header.Get("Content-Type")))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// asChange is a request that is looked at as one that changes something: those that do not take time and memory, too.
func asChange(r *http.Request) *http.Request {
	as := *r
	as.Method = http.MethodPost
	return &as
}

func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// calls tells that a request names the server as it may be called: by a name or an address of this machine, by an address where it comes
// from another machine, since no name leads there, or by an allowed name.
func (s *Server) calls(r *http.Request) bool {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if slices.ContainsFunc(s.AllowedHosts, func(allowed string) bool { return allowed == "*" || strings.EqualFold(allowed, host) }) {
		return true
	}
	if at, err := netip.ParseAddr(host); err == nil {
		return at.Unmap().IsLoopback() || !throughLoopback(r)
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// throughLoopback tells that a request has come to a loopback address.
func throughLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return true
	}
	local, err := netip.ParseAddrPort(at.String())
	return err != nil || local.Addr().Unmap().IsLoopback()
}
