package server

import quotav1 "github.com/quorate/quorate/api/quota/v1"

// Bounds that tests go up to.
const (
	MaxChecks   = maxChecks
	MaxMessage  = maxMessage
	MaxOpen     = maxOpen
	MaxPolicies = maxPolicies
	MaxApplies  = maxApplies
	MaxWatches  = maxWatches
	MaxStreams  = maxStreams
)

// Service is the gRPC service without a connection.
func (s *Server) Service() quotav1.QuotaServer { return &quota{server: s} }

// Advice is the wait that a denial tells, in whole seconds.
var Advice = retryAfter

// Methods are all that a connection can call, by full name, and whether they stream.
func (s *Server) Methods() map[string]bool {
	all := map[string]bool{}
	for service, info := range s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			all["/"+service+"/"+m.Name] = m.IsClientStream || m.IsServerStream
		}
	}
	return all
}
