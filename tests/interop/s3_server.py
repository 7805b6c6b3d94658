"""Runs a command beside an S3 server, with the environment set and a bucket `loaderx` made:

    python s3_server.py [--address ADDRESS] COMMAND [ARGUMENT...]

On loopback, unless another address of this machine is given. It needs moto (pip install 'moto[s3,server]').
"""

import os
import subprocess
import sys

import boto3
from moto.server import ThreadedMotoServer

command = sys.argv[1:]
address = "127.0.0.1"
if command[0] == "--address":
    address, command = command[1], command[2:]
server = ThreadedMotoServer(ip_address=address, port=0, verbose=False)
server.start()
_, port = server.get_host_and_port()
os.environ.update(
    AWS_ENDPOINT_URL=f"http://{address}:{port}",
    AWS_ACCESS_KEY_ID="test",
    AWS_SECRET_ACCESS_KEY="not-a-secret",
    AWS_REGION="us-east-1",
    LOADERX_S3="s3://loaderx",
)
s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1")
s3.create_bucket(Bucket="loaderx")
status = subprocess.run(command).returncode
server.stop()
sys.exit(status)
