// Command asker is the application of the test cluster: it runs in a pod beside a gateway, and asks it over loopback, as
// applications do. What it sees it writes down, as a history that the checker judges.
//
// It does what it is told over HTTP:
//
//	/ask?principal=u1   asks once, and answers what the gateway did
//	/begin              lets callers ask on and on
//	/figures            what they have seen so far, as JSON
//	/end                returns once every caller has its last answer
//	/history            all that callers saw, one line of JSON each
package main

import (
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
	"time"
)

func main() {
	listen := flag.String("listen", ":9090", "address to be told on")
	gateway := flag.String("gateway", "http://127.0.0.1:8080", "the gateway's HTTP front")
	metrics := flag.String("metrics", "http://127.0.0.1:8082/metrics", "the gateway's metrics")
	flag.Parse()
	c := newCrowd(*gateway, *metrics)
	s := &http.Server{Addr: *listen, Handler: c.routes(), ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(s.ListenAndServe())
}

func (c *crowd) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/ask", func(w http.ResponseWriter, r *http.Request) {
		status, body, err := c.get(r.URL.RawQuery)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		tell(w, map[string]any{"status": status, "answer": json.RawMessage(body)})
	})
	mux.HandleFunc("/begin", func(w http.ResponseWriter, _ *http.Request) {
		c.begin()
		tell(w, c.figures())
	})
	mux.HandleFunc("/figures", func(w http.ResponseWriter, _ *http.Request) { tell(w, c.figures()) })
	mux.HandleFunc("/end", func(w http.ResponseWriter, _ *http.Request) {
		c.end()
		tell(w, c.figures())
	})
	mux.HandleFunc("/history", func(w http.ResponseWriter, _ *http.Request) {
		if err := c.notes.copyTo(w); err != nil {
			log.Print("history: ", err)
		}
	})
	return mux
}

// tell answers; whoever hangs up meanwhile asks again.
func tell(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		log.Print("tell: ", err)
	}
}

// get asks the gateway once.
func (c *crowd) get(query string) (status int, body []byte, err error) {
	r, err := c.client.Get(c.gateway + "/check?" + query)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = r.Body.Close() }() // it was read to its end, or is of no use
	body, err = io.ReadAll(io.LimitReader(r.Body, 1<<16))
	return r.StatusCode, body, err
}
