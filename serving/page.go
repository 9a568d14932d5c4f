package serving

import (
	"embed"
	"net/http"
)

//go:embed page
var pageFiles embed.FS

// page is the page at /, which needs no key to be looked at.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if r.URL.Path == "/" {
		http.ServeFileFS(w, r, pageFiles, "page/page.html")
		return
	}
	http.FileServerFS(pageFiles).ServeHTTP(w, r)
}
